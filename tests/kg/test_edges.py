"""Edges of what the graph's builders and searches accept and choose."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from core.files import InputError
from kg.build.lookup import MOST, format_entity
from kg.build.refine import Refining
from kg.build.segment.cuts import propose_cuts
from kg.build.segment.mining import SHORT, _is_long_candidate
from kg.documents.bioc import biocjson_documents
from kg.documents.mentions import NOT_FITTING
from kg.documents.parts import InParts
from kg.documents.uima import _character_places
from kg.linking.inflection import stem


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({"longest": 1, "least": 1, "loose": 0, "share": 1}, True),
        ({"longest": 0}, False),
        ({"least": 0}, False),
        ({"loose": -0.01}, False),
        ({"share": 1.01}, False),
    ],
)
def test_limits_of_refining(settings: dict[str, float], fits: bool) -> None:
    if fits:
        Refining(**settings)  # type: ignore[arg-type]
        return
    with pytest.raises(InputError, match="expected longest and least of 1 or more"):
        Refining(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(("workers", "size", "fits"), [(1, 1, True), (0, 1, False), (1, 0, False)])
def test_limits_of_parts(workers: int, size: int, fits: bool) -> None:
    if fits:
        assert InParts(workers=workers, part_size=size).processes == 1
        return
    with pytest.raises(InputError, match="at least one worker and one byte"):
        InParts(workers=workers, part_size=size)


def test_a_character_that_begins_as_many_words_as_it_ends_is_cut_behind() -> None:
    rows = propose_cuts([("性", 3, 3, "a"), ("急", 4, 3, "b"), ("的", 3, 4, "c")], {"的": "before"})
    assert [(row.character, row.side) for row in rows] == [
        ("性", "behind"),
        ("急", "before"),
        ("的", "before"),
    ]


@pytest.mark.parametrize(("more", "long"), [(0, False), (1, True)])
def test_a_long_name_has_more_characters_than_a_short_one(more: int, long: bool) -> None:
    assert _is_long_candidate(" ".join("糖" * (SHORT + more))) is long
    assert not _is_long_candidate("a" * (SHORT + more))


@pytest.mark.parametrize("more", [0, 1])
def test_the_first_neighbours_are_shown_and_the_others_counted(more: int) -> None:
    places = [f"n{number}" for number in range(MOST + more)]
    about = {"id": "A", "name": "a", "type": "", "names": [], "definition": None}
    shown = format_entity(about | {"neighbours": {"r": places}, "same as": []}).splitlines()
    assert shown[0] == "A  a  [no type]"
    assert shown[2 : 2 + MOST] == [f"    {place}" for place in places[:MOST]]
    assert shown[2 + MOST :] == (["    … and 1 more"] if more else [])


def test_offsets_in_utf_16_of_the_last_and_first_characters_of_one_and_two_units() -> None:
    assert _character_places("a\uffff\U00010000b") == {0: 0, 1: 1, 2: 2, 4: 3, 5: 4}


@pytest.mark.parametrize("used", [True, False])
def test_annotations_of_bioc_that_are_none(tmp_path: Path, used: bool) -> None:
    path = tmp_path / "a.json"
    path.write_text(
        '{"documents": [{"id": "1", "passages": [{"offset": 0, "text": "gout",'
        ' "annotations": [7]}]}]}'
    )
    left_out = Counter[str]()
    if used:
        with pytest.raises(InputError, match="a.json: document 1"):
            list(biocjson_documents(path, "utf-8", left_out, True))
    else:
        (document,) = biocjson_documents(path, "utf-8", left_out, False)
        assert document.text == "gout" and left_out[NOT_FITTING] == 1


@pytest.mark.parametrize(
    ("one", "several"),
    [
        ("gas", "gases"),
        ("mass", "masses"),
        ("rash", "rashes"),
        ("itch", "itches"),
        ("box", "boxes"),
        ("gaze", "gazes"),
        ("face", "faces"),
        ("cage", "cages"),
        ("body", "bodies"),
        ("wart", "warts"),
        ("calf", "calves"),
        ("bursa", "bursae"),
        ("stoma", "stomata"),
        ("nephritis", "nephritides"),
        ("crisis", "crises"),
        ("lymphoma", "lymphomata"),
        ("ganglion", "ganglia"),
        ("foramen", "foramina"),
        ("phalanx", "phalanges"),
        ("cortex", "cortices"),
        ("bacterium", "bacteria"),
        ("nevus", "nevi"),
    ],
)
def test_a_word_and_its_plural_have_one_stem(one: str, several: str) -> None:
    assert stem(one) == stem(several)
