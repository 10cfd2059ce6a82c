import gzip
import tarfile
from pathlib import Path

import pytest

from core.files import InputError
from kg.build.sources import tables
from tests.commands import command, read_tables

SHARED = Path(__file__).parents[2].parent / "shared" / "data"

CSV = {
    "entities.csv": 'id,name,type\nE1,"Aspirin, plain",drug\nE2,Headache,symptom\n',
    "names.csv": "id,name,kind,language,source\nE1,ASA,abbreviation,en,here\nE2,头痛,,zh,\n",
    "definitions.csv": 'id,text\nE1,"A drug\nof two lines."\n',
    "triples.csv": "head,relation,tail,score\nE1,treats,E2,1\nE1,treats,E2,2\n",
}


def put(folder, files):
    for name, text in files.items():
        data = text if isinstance(text, bytes) else text.encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def rows(table):
    return [tuple(row.values()) for row in table.to_pylist()]


def check(graph, text):
    assert rows(graph.entities) == [("E1", "Aspirin, plain", "drug"), ("E2", "Headache", "symptom")]
    assert rows(graph.names) == [
        ("E1", "Aspirin, plain", "preferred", "en", "tables"),
        ("E2", "Headache", "preferred", "en", "tables"),
        ("E1", "ASA", "abbreviation", "en", "here"),
        ("E2", "头痛", "synonym", "zh", "tables"),
    ]
    assert rows(graph.definitions) == [("E1", text)]
    assert rows(graph.triples) == [("E1", "treats", "E2")]  # the same triple twice is one


def test_csv(tmp_path):
    check(read_tables(put(tmp_path, CSV)), "A drug\nof two lines.")


def test_tsv_gz_with_a_byte_order_mark(tmp_path):
    files = {
        "entities.tsv.gz": (
            "\ufeffid\tname\ttype\nE1\tAspirin, plain\tdrug\nE2\tHeadache\tsymptom\n"
        ),
        "names.tsv": (
            "id\tname\tkind\tlanguage\tsource\nE1\tASA\tabbreviation\ten\there\nE2\t头痛\t\tzh\t\n"
        ),
        "definitions.tsv": 'id\ttext\nE1\tA "drug\n',
        "triples.tsv.gz": "tail\trelation\thead\r\nE2\ttreats\tE1\r\n",
    }
    check(read_tables(put(tmp_path, files)), 'A "drug')


def test_jsonl(tmp_path):
    files = {
        "entities.jsonl": (
            '{"id": "E1", "name": "Aspirin, plain", "type": "drug"}\n{"id": "E2", "name":'
            ' "Headache", "type": "symptom"}\n'
        ),
        "names.jsonl": (
            '{"id": "E1", "name": "ASA", "kind": "abbreviation", "source": "here"}\n'
            '{"id": "E2", "name": "头痛", "kind": null, "language": "zh"}\n'
        ),
        "definitions.jsonl": '{"id": "E1", "text": "A\\ndrug"}\n',
        "triples.jsonl": '{"head": "E1", "relation": "treats", "tail": "E2"}\n',
    }
    check(read_tables(put(tmp_path, files)), "A\ndrug")


def test_headerless_triples_alone(tmp_path):
    path = put(tmp_path, {"train.txt": "a\tr\tb\nb\ts\tc\n"}) / "train.txt"
    graph = read_tables(path, headerless=True, missing="add")
    assert rows(graph.entities) == [("a", "a", ""), ("b", "b", ""), ("c", "c", "")]
    assert rows(graph.triples) == [("a", "r", "b"), ("b", "s", "c")]
    assert {row[2] for row in rows(graph.names)} == {"preferred"}
    with pytest.raises(InputError, match=r"no entities table.*--missing add"):
        read_tables(path, headerless=True)


def test_several_files_and_other_column_names(tmp_path):
    files = {
        "nodes.tsv": "id\tname\tkind\n1\tone\tnumber\n2\ttwo\tnumber\n",
        "a.tsv": "source\tedge\ttarget\n1\tbelow\t2\n",
        "b.tsv": "source\tedge\ttarget\n2\tabove\t1\n",
    }
    graph = read_tables(
        put(tmp_path, files),
        entities=("nodes.tsv",),
        triples=("a.tsv", "b.tsv"),
        columns=("type=kind", "head=source", "relation=edge", "tail=target"),
    )
    assert rows(graph.entities) == [("1", "one", "number"), ("2", "two", "number")]
    assert rows(graph.triples) == [("1", "below", "2"), ("2", "above", "1")]
    with pytest.raises(InputError, match="--columns head: expected ours=theirs"):
        read_tables(tmp_path, columns=("head",))


def test_equivalences(tmp_path):
    more = {"equivalences.csv": "head,tail,relation\nE1,E2,别称\nE2,E1,\nE2,E1,\n"}
    graph = read_tables(put(tmp_path, CSV | more))
    assert rows(graph.equivalences) == [("E1", "别称", "E2"), ("E2", "equivalent", "E1")]
    assert rows(graph.triples) == [("E1", "treats", "E2")]
    named = read_tables(
        put(tmp_path, {"same.tsv": "head\ttail\nE1\tE2\n"}), equivalences=("same.tsv",)
    )
    assert rows(named.equivalences) == [("E1", "equivalent", "E2")]


def test_missing_adds(tmp_path):
    put(tmp_path, CSV | {"triples.csv": "head,relation,tail\nE1,treats,E9\n"})
    with pytest.raises(InputError, match=r"triples\.csv:2: unknown entity id 'E9'"):
        read_tables(tmp_path)
    assert rows(read_tables(tmp_path, missing="add").entities)[2] == ("E9", "E9", "")


def test_encoding(tmp_path):
    put(tmp_path, {"entities.csv": "id,name\n1,阿司匹林\n".encode("gb18030")})
    assert read_tables(tmp_path, encoding="gb18030").entities["name"].to_pylist() == ["阿司匹林"]
    with pytest.raises(InputError, match=r"entities\.csv:2: not utf-8 text"):
        read_tables(tmp_path)
    with pytest.raises(InputError, match="--encoding utf-9: no such encoding"):
        read_tables(tmp_path, encoding="utf-9")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"names.csv": "id,name\nE1,a\nE7,b\n"}, r"names\.csv:3: unknown entity id 'E7'"),
        (
            {"definitions.csv": 'id,text\nE1,"two\nlines"\nE7,b\n'},
            r"definitions\.csv:4: unknown entity id 'E7'",
        ),
        (
            {"entities.csv": "id,name\nE1,a\nE2,b\nE1,c\n"},
            r"entities\.csv:4: entity id 'E1' occurs twice",
        ),
        ({"entities.csv": "id,name\nE1,a\nE2, \n"}, r"entities\.csv:3: name is empty"),
        (
            {"entities.csv": "id,label\nE1,a\n"},
            r"entities\.csv:1: expected the columns id, name, got id, label",
        ),
        (
            {"triples.csv": "head,relation,tail\nE1,treats,E2\nE1,E2\n"},
            r"triples\.csv:3: expected 3 columns .*got 2",
        ),
        (
            {"triples.csv": 'head,relation,tail\nE1,"treats"x,E2\n'},
            r"triples\.csv:2: not valid CSV",
        ),
        (
            {"triples.csv": 'head,relation,tail\nE1,"treats,E2\nE1,treats,E2\n'},
            r"triples\.csv:2: not valid CSV",
        ),
        ({"triples.jsonl": '{"head": "E1"\n'}, r"triples\.jsonl:1: not valid JSON .*Fix the line"),
        (
            {"equivalences.csv": "head,tail\nE1,E7\n"},
            r"equivalences\.csv:2: unknown entity id 'E7'",
        ),
        (
            {"equivalences.csv": "head,relation\nE1,别称\n"},
            r"equivalences\.csv:1: expected the columns head, tail",
        ),
        ({"triples.jsonl": "[1]\n"}, r"triples\.jsonl:1: expected a JSON object"),
    ],
)
def test_broken(tmp_path, files, message):
    with pytest.raises(InputError, match=message):
        read_tables(put(tmp_path, CSV | files))


def test_nothing_there(tmp_path):
    with pytest.raises(InputError, match="no tables here"):
        read_tables(tmp_path)
    with pytest.raises(InputError, match=r"none\.csv: no such file"):
        read_tables(put(tmp_path, CSV), triples=("none.csv",))
    with pytest.raises(InputError, match="--missing maybe: expected error, add or drop"):
        read_tables(tmp_path, missing="maybe")


@pytest.mark.data
def test_real(tmp_path):
    for archive in ("en_kg_umls_semnet/umls_semnet.tar.gz", "en_kg_hetionet/hetionet_5k.tar.gz"):
        if not (SHARED / archive).is_file():
            pytest.skip(f"{SHARED / archive} is not here")
        with tarfile.open(SHARED / archive) as tar:
            tar.extractall(tmp_path, filter="data")
    semnet = read_tables(
        tmp_path / "umls_semnet",
        triples=("train.txt", "valid.txt", "test.txt"),
        headerless=True,
        missing="add",
    ).counts()
    assert (semnet["entities"], semnet["relations"], semnet["triples"]) == (
        135,
        46,
        5216 + 652 + 661,
    )
    hetionet = read_tables(
        tmp_path / "hetionet",
        entities=("nodes.tsv",),
        triples=("edges-5k.sif.gz",),
        columns=("type=kind", "head=source", "relation=metaedge", "tail=target"),
    ).counts()
    assert (hetionet["entities"], hetionet["relations"], hetionet["triples"]) == (47031, 24, 99676)


def test_names_of_files_and_columns_in_any_case_number_and_usual_word(tmp_path):
    files = {
        "Nodes.CSV": 'ID,Name,Type\nE1,"Aspirin, plain",drug\nE2,Headache,symptom\n',
        "synonyms.csv": "id,name,Kind,lang,Sources\nE1,ASA,abbreviation,en,here\nE2,头痛,,zh,\n",
        "Definition.csv": 'id,text\nE1,"A drug\nof two lines."\n',
        "relations.csv": "Head,Relation,TAIL,score\nE1,treats,E2,1\nE1,treats,E2,2\n",
        "read.me": "x",
    }
    graph = read_tables(put(tmp_path, files))
    check(graph, "A drug\nof two lines.")
    assert graph.manifest["left_out"] == {
        "files that are no table (read.me)": 1,
        "columns of relations.csv that no table of triples has (score)": 1,
        "rows of triples that stand there twice": 1,
    }


def test_a_tables_own_name_goes_first_and_two_other_names_are_refused(tmp_path):
    graph = read_tables(put(tmp_path, CSV | {"relations.csv": "no table\n"}))
    check(graph, "A drug\nof two lines.")
    assert graph.manifest["left_out"]["files that are no table (relations.csv)"] == 1
    (tmp_path / "triples.csv").unlink()
    put(tmp_path, {"edges.csv": "head,relation,tail\nE1,treats,E2\n"})
    with pytest.raises(
        InputError,
        match=r"edges\.csv and relations\.csv could all be triples\. Name which: --triples FILE",
    ):
        read_tables(tmp_path)
    put(
        tmp_path,
        {
            "edges.csv": "head,relation,tail\n",
            "names.csv": "id,name,kind,Kinds,type\nE1,a,broad,c,d\n",
        },
    )
    # the exact name goes first
    assert read_tables(tmp_path, triples=("edges.csv",)).names["kind"].to_pylist()[-1] == "broad"
    put(tmp_path, {"names.csv": "id,name,Kind,kinds\nE1,a,b,c\n"})
    with pytest.raises(InputError, match=r"names\.csv:1: Kind and kinds could both be kind"):
        read_tables(tmp_path, triples=("edges.csv",))
    put(tmp_path, {"names.csv": "id,name,name\nE1,a,b\n"})
    with pytest.raises(InputError, match=r"names\.csv:1: the column 'name' occurs twice"):
        read_tables(tmp_path, triples=("edges.csv",))


def test_kinds_and_languages_in_any_case(tmp_path):
    names = (
        "id,name,kind,language\nE1,a,EXACT,EN\nE1,b,Uk"
        " Spelling,eng\nE1,c,,English\nE1,d,related,chi\nE1,e,exact,pt-BR\n"
    )
    graph = read_tables(put(tmp_path, {"entities.csv": "id,name\nE1,x\n", "names.csv": names}))
    found = [(row["kind"], row["language"]) for row in graph.names.to_pylist()[1:]]
    assert found == [
        ("exact", "en"),
        ("uk_spelling", "en"),
        ("synonym", "en"),
        ("related", "zh"),
        ("exact", "pt"),
    ]
    for row, message in (
        ("E1,a,exat,en", "no kind of name 'exat'; .*exact"),
        ("E1,a,exact,englisch text", "code of a language"),
    ):
        put(tmp_path, {"names.csv": f"id,name,kind,language\n{row}\n"})
        with pytest.raises(InputError, match=rf"names\.csv:2: .*{message}"):
            read_tables(tmp_path)


def test_fields_of_tsv_may_be_in_quotes(tmp_path):
    rows_ = (
        '"id"\t"name"\nE1\t"one\ttab and ""quotes"""\nE2\t"Foo" syndrome\nE3\t5" pipe\nE4\t"open\n'
    )
    graph = read_tables(put(tmp_path, {"entities.tsv": rows_}))
    assert graph.entities["name"].to_pylist() == [
        'one tab and "quotes"',
        '"Foo" syndrome',
        '5" pipe',
        '"open',
    ]


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"entities.csv": "id,name\n"}, {}, r"entities\.csv: no entity"),
        ({"nodes.tsv": ""}, {}, r"nodes\.tsv: no entity"),
        ({"concepts.jsonl": ""}, {}, r"concepts\.jsonl: no entity"),
        ({"edges.csv": "head,relation,tail\n"}, {"missing": "add"}, r"edges\.csv: no entity"),
    ],
)
def test_tables_without_an_entity_are_an_error_that_names_them(tmp_path, files, options, message):
    put(tmp_path, files)
    with pytest.raises(InputError, match=message):
        read_tables(tmp_path, **options)
    words = ["tables", str(tmp_path), "--out", str(tmp_path / "graph")]
    words += [f"{name}={value}" for name, value in options.items()]
    assert command("graph build")(words) == 2 and not (tmp_path / "graph").exists()


def test_hidden_files_and_tables_without_a_row_are_counted(tmp_path):
    more = {"._entities.csv": b"\x00\x05", ".DS_Store": "x", "definitions.csv": "id,text\n"}
    graph = read_tables(put(tmp_path, CSV | more))
    assert len(graph.entities) == 2
    left_out = graph.manifest["left_out"]
    assert left_out["hidden files"] == 2
    assert left_out["definitions.csv: a table without a row"] == 1
    assert not any(file.name.startswith(".") for file in tables.files(tmp_path))


def test_a_source_without_an_entity_is_an_error(tmp_path, capsys):
    file = put(tmp_path, {"none.obo": "[Term]\nid: X:1\nname: a\nis_obsolete: true\n"}) / "none.obo"
    assert command("graph build")(["obo", str(file), "--out", str(tmp_path / "graph")]) == 2
    assert "none.obo: no entity in it" in capsys.readouterr().err


def test_a_csv_with_semicolons(tmp_path):
    files = {
        "entities.csv": 'id;name;type\nE1;"Aspirin, plain";drug\nE2;Headache;symptom\n',
        "names.csv": "id;name;kind;language;source\nE1;ASA;abbreviation;en;here\nE2;头痛;;zh;\n",
        "definitions.csv": 'id,text\nE1,"A drug; of two lines."\n',
        "triples.csv": "head;relation;tail\nE1;treats;E2\n",
    }
    check(read_tables(put(tmp_path, files)), "A drug; of two lines.")


def test_several_names_in_a_field(tmp_path):
    text = "hgnc_id\tsymbol\talias_symbol\tprev_symbol\n"
    text += "H:1\tA1BG\t GAB | ABG|GAB\tN/A\nH:2\tA2M\t\tA2M|FWP007\n"
    put(tmp_path, {"entities.tsv": text})
    options = {"columns": ["id=hgnc_id", "name=symbol"], "separator": "|"}
    graph = read_tables(tmp_path, synonyms=["alias_symbol", "prev_symbol"], **options)
    assert [row[:3] for row in rows(graph.names)] == [
        ("H:1", "A1BG", "preferred"),
        ("H:1", "GAB", "synonym"),
        ("H:1", "ABG", "synonym"),
        ("H:2", "A2M", "preferred"),
        ("H:2", "FWP007", "synonym"),
    ]
    assert graph.manifest["left_out"] == {
        "fields of prev_symbol that say there is no name (N/A)": 1,
    }
    with pytest.raises(InputError, match=r"no column 'aliases'; expected one of hgnc_id"):
        read_tables(tmp_path, synonyms=["aliases"], **options)
    with pytest.raises(InputError, match="--separator"):
        read_tables(tmp_path, columns=options["columns"], separator="")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["name=Labell"], r"--columns name=Labell: no column 'Labell'; did you mean Label"),
        (["type=Kynd"], r"--columns type=Kynd: no column 'Kynd'"),
        (["name=Label", "head=Code"], "--columns head=Code: no table was read for head"),
    ],
)
def test_a_column_that_is_not_read_is_an_error(
    columns: list[str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "e.csv").write_text("Code,Label,Kind\nD1,gout,disease\n")
    with pytest.raises(InputError, match=message):
        read_tables(tmp_path / "e.csv", columns=["id=Code", *columns])
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "entities.csv").write_text("id,name,Kind\nD1,gout,disease\n")
    with pytest.raises(InputError, match="--columns type=Kynd"):
        read_tables(folder, columns=["type=Kynd"])
    graph = read_tables(folder, columns=["entities.type=Kind"])
    assert graph.entities["type"].to_pylist() == ["disease"]


def test_a_type_that_says_there_is_none_is_empty(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("id,name,type\nD1,gout,N/A\nD2,ataxia,sign\n")
    assert read_tables(tmp_path / "e.csv").entities["type"].to_pylist() == ["", "sign"]


def test_ids_that_are_one_but_for_case_are_said(tmp_path, caplog):
    rows = (
        "id,name,type\nC001,gout,x\nc001 ,renal failure,x\nHP:1,fit,x\nHP_1,fits,x\nC002,rash,x\n"
    )
    (tmp_path / "entities.csv").write_text(rows)
    graph = read_tables(tmp_path / "entities.csv")
    assert graph.ids.to_pylist() == ["C001", "c001", "HP:1", "HP_1", "C002"]
    assert (
        "2 entities have the id of another but for case, blanks or marks ('C001' and" in caplog.text
    )


def test_languages_by_their_words(tmp_path):
    (tmp_path / "entities.csv").write_text("id,name,type\nA,gout,x\n")
    (tmp_path / "names.csv").write_text("id,name,language\nA,Gicht,German\nA,goutte,French\n")
    names = read_tables(tmp_path).names
    assert set(names["language"].to_pylist()) == {"en", "de", "fr"}
