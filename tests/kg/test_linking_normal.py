"""The normal form of names and texts, its weaker forms, and plurals."""

from __future__ import annotations

import doctest
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kg.linking import composites, inflection, normal, sentences
from kg.linking.inflection import stem
from kg.linking.normal import comparable, compare_words, difference, form_key, normalize
from kg.linking.passage import Passage
from kg.linking.tokens import cased_words


@pytest.mark.parametrize("module", [normal, inflection, sentences, composites])
def test_examples(module) -> None:
    assert doctest.testmod(module).attempted and not doctest.testmod(module).failed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Crohn\u2019s", "Crohn's"),
        ("Crohn\u02bcs", "Crohn's"),
        ("5\u2032-end", "5'-end"),
        (
            "IL\u20112 IL\u20132 IL\u22122 IL\u20102 IL\u20142 IL\u20152 IL\u20122",
            "IL-2 " * 6 + "IL-2",
        ),
        ("\uff11\u578b\uff08\uff2d\uff32\uff09", "1\u578b(MR)"),
        ("H\u2082O, Ca\u00b2\u207a, Cl\u207b", "H2O, Ca2+, Cl-"),
        ("o\ufb03ce \u216b \u33a5", "office XII m3"),
        ("Me\u0301nie\u0300re", "M\u00e9ni\u00e8re"),
        ("dia\u00adbe\u200btes", "diabetes"),
        ("\u201cpox\u201d", '"pox"'),
        ("1\u00bd mg\u2122", "1\u00bd mg\u2122"),  # a fraction, and a trade mark, stay
        ("\u2461pox", " 2 pox"),
        ("\u00b5g", "\u03bcg"),
        ("a\u00a0b", "a b"),
        ("\u304b\u3099", "\u304c"),
        ("\u1112\u1161\u11ab", "\ud55c"),
    ],
)
def test_characters(text: str, expected: str) -> None:
    found = normalize(text)
    assert found.text == expected
    word = "pox"
    passage = Passage(f"{text} {word}")
    start = passage.text.index(word, len(expected))
    assert passage.source_place(start, start + 3) == (len(text) + 1, len(text) + 4)


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_every_character_of_the_normal_form_has_a_place(text: str) -> None:
    found = normalize(text)
    places = [found.place(i, i + 1) for i in range(len(found.text))]
    assert all(0 <= a < b <= len(text) for a, b in places)
    assert places == sorted(places)
    assert normalize(unicodedata.normalize("NFC", text)).text == normalize(
        unicodedata.normalize("NFD", text)
    ).text or not (text.isprintable())


PLURALS = """
cyst cysts|biopsy biopsies|abscess abscesses|reflex reflexes|sinus sinuses|kidney kidneys|larva larvae|alga algae|stimulus
stimuli|villus villi|ovum ova|septum septa|cranium crania|stroma stromata|pelvis pelves|testis testes|prosthesis prostheses|
thesis theses|varix varices|vertex vertices|pharynx pharynges|meninx meninges|criterion criteria|spermatozoon spermatozoa|foot
feet|tooth teeth|louse lice|woman women|calf calves|wolf wolves|valve valves|potato potatoes|toe toes|axis axes|crisis crises|
synapse synapses|dose doses|syringe syringes|gene genes|sheath sheaths|pouch pouches|torax toraces|lumen lumina|neurosis neuroses
"""  # noqa: E501
DIFFERENT = (
    "test testis|colon cola|virus viral|pus puss|news new|pneumonia pneumoniae|fungus"
    " fungal|ray rye"
)


@pytest.mark.parametrize("pair", PLURALS.replace("\n", " ").split("|"))
def test_plural_and_singular_have_one_stem(pair: str) -> None:
    singular, plural = pair.split()
    assert stem(singular) == stem(plural)
    assert (
        difference(f"big {singular}", f"big {plural}")
        == difference(f"big {plural}", f"big {singular}")
        == "plural"
    )


@pytest.mark.parametrize("pair", DIFFERENT.split("|"))
def test_other_words_have_another_stem(pair: str) -> None:
    one, other = pair.split()
    assert stem(one) != stem(other)


SPELLINGS = """
anaemia anemia|leukaemia leukemia|oedema edema|oesophagus esophagus|diarrhoea diarrhea|dyspnoea dyspnea|foetal fetal|faeces feces|
haemoglobin hemoglobin|tumour tumor|behavioural behavioral|fibre fiber|goitre goiter|centred centered|sulphate sulfate|
localised localized|hospitalisation hospitalization|paralysed paralyzed|signalling signaling|aluminium aluminum|coeliac celiac|
phaeochromocytoma pheochromocytoma|caesarean cesarean|melaena melena|mould mold|β-cell beta-cell|γ-globulin gamma-globulin
"""  # noqa: E501
OTHER_WORDS = (
    "four for|hexaene hexene|Loesch Lesch|poem pem|course corse|pour por|AESTR ESTR|toes tes"
)


@pytest.mark.parametrize("pair", SPELLINGS.replace("\n", " ").split("|"))
def test_british_and_american_spelling_are_one_word(pair: str) -> None:
    british, american = pair.split()
    for name, text in ((british, american), (american, british)):
        assert difference(f"big {name}", f"big {text}") == "spelling"
        assert difference(f"big {name}", f"big {text}", "normal") is None
        assert difference(f"big {name}", f"big {text}", english=False) is None
        assert form_key(name) == form_key(text)


@pytest.mark.parametrize("pair", OTHER_WORDS.split("|"))
def test_words_that_only_look_like_another_spelling(pair: str) -> None:
    one, other = pair.split()
    assert difference(f"big {one}", f"big {other}") is None


def test_a_plural_in_another_spelling() -> None:
    assert difference("breast tumor", "breast tumours") == "plural+spelling"
    assert difference("muscle fibres", "muscle fiber") == "plural+spelling"
    assert difference("haemorrhage", "Hemorrhages") == "plural+spelling"
    for word in ("hour", "apnoea", "analysis", "pelvis", "centre", "tumour", "phloem", "labelling"):
        plural = {"analysis": "analyses"}.get(word, word + ("es" if word == "pelvis" else "s"))
        assert difference(f"one {word}", f"one {plural}") == "plural", word


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("TNF-alpha", "TNFα", "spelling+punctuation"),
        ("TNF alpha", "TNF-α", "spelling+punctuation"),
        ("TNFα", "TNF-alpha", "spelling+punctuation"),
        ("lambda phage", "λ phage", "spelling"),
        ("ω-3 fatty acid", "omega-3 fatty acids", "plural+spelling"),
        ("alpha", "α", None),  # a letter alone is a sign
        ("beta cell", "α cell", None),
        ("αβ T cell", "alpha beta T cell", None),
        ("type 2 diabetes", "type II diabetes", "spelling"),
        ("factor VIII deficiency", "factor 8 deficiency", "spelling"),
        ("Gaucher disease, type IIIa", "Gaucher disease type 3A", "spelling+punctuation"),
        ("stage 19", "stage XIX", "spelling"),
        ("type 2", "type III", None),
        ("grade 1", "grade i", "spelling"),
        ("hepatitis 1", "hepatitis I", None),  # may be a letter
        ("1", "I", None),
        ("ECG", "ECGs", "plural"),
        ("ECG", "ECGS", None),
        ("CT", "CTs", None),
        ("NSAID therapy", "NSAIDs therapy", "plural"),
    ],
)
def test_greek_letters_numbers_and_plurals_of_short_forms(
    name: str, text: str, expected: str | None
) -> None:
    assert difference(name, text) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("Bell's palsy", "bell palsy", "punctuation"),
        ("Bell palsy", "Bell\u2019s palsy", "punctuation"),
        ("B-cell lymphoma", "B cell lymphomas", "plural+punctuation"),
        ("Guillain-Barr\u00e9 syndrome", "Guillain Barre syndrome", "punctuation+accents"),
        ("anemia, sickle cell", "anemia sickle cell", "punctuation"),
        ("tyrosinemia type 1", "tyrosinemia, type 1", "punctuation"),
        ("heart failure", "heart, failure", None),  # a list
        ("AIDS", "AID", None),
        ("GAS", "gases", None),
        ("GPs", "GP", None),
        ("CD4", "CD4s", None),
        ("rib", "ribs", "plural"),
        ("Rib", "ribs", None),  # may be a symbol
        ("SEIZURE", "SEIZURES", "plural"),
        ("\u80be\u75c5", "\u80be,\u75c5", None),
        ("\u80be\u75c5", "\u80be-\u75c5", None),
        ("\u80be,\u75c5", "\u80be\u75c5", None),
        ("\u03b1-globin", "\u03b1 globins", "plural+punctuation"),
        ("fever", "favor", None),
    ],
)
def test_differences(name: str, text: str, expected: str | None) -> None:
    assert difference(name, text) == expected
    assert (form_key(name) == form_key(text)) or expected is None


def test_levels_and_languages() -> None:
    name, text = cased_words("Caf\u00e9 spots"), cased_words("cafe spot")
    found = compare_words(name, text)
    assert found is not None and found.plural and found.accents and not found.punctuation
    assert compare_words(name, text, "normal") is None
    assert compare_words(name, text, english=False) is None
    assert str(compare_words(name, cased_words("cafe spots"), "normal")) == "accents"
    assert compare_words(name, cased_words("cafe spots"), "exact") is None
    assert (
        difference("dog", "dog") == ""
        and comparable(" Crohn\u2019s  DISEASE") == "crohn ' s disease"
    )


def test_a_text_and_the_places_of_its_words() -> None:
    passage = Passage("\u2167-a dia\u00adbetes. \uff21lso")
    assert passage.text == "VIII-a diabetes. Also"
    assert [passage.place(i, i) for i in range(len(passage.words))] == [
        (0, 1),
        (1, 2),
        (2, 3),
        (4, 13),
        (13, 14),
        (15, 19),
    ]
    assert passage.sentence_starts == [0, 17] and passage.normal_offset(4) == 7
    assert Passage("\uff21", "exact").text == "\uff21"


def test_capitals_of_a_sentence() -> None:
    text = "SHE WAS AT REST. TP53, EGFR, KRAS. We saw REST and SHE.\nNO FEVER TODAY"
    passage = Passage(text)
    places = [text.index(word) for word in ("SHE WAS", "TP53", "We saw", "NO FEVER")]
    assert [passage.is_capitals(place) for place in places] == [True, False, False, True]


@pytest.mark.parametrize(
    ("text", "mention", "parts"),
    [
        ("pox a, b or c", "pox a", ["pox a", "pox b", "pox c"]),
        ("pox a/b/c", "pox a", ["pox a", "pox b", "pox c"]),
        ("lung as well as skin pest", "skin pest", ["lung pest", "skin pest"]),
        ("neither lung nor skin pest", "skin pest", ["lung pest", "skin pest"]),
        ("lung- and skin pest", "skin pest", ["lung- pest", "skin pest"]),
        ("lung, eye and skin pest", "skin pest", ["lung pest", "eye pest", "skin pest"]),
        ("lung, fever and skin pest", "skin pest", ["skin pest"]),
        ("- and skin pest", "skin pest", ["skin pest"]),
        ("pox a, fever", "pox a", ["pox a"]),
    ],
)
def test_phrases_around_a_name(text: str, mention: str, parts: list[str]) -> None:
    names = {
        "pox a",
        "pox b",
        "pox c",
        "lung pest",
        "eye pest",
        "skin pest",
        "pest",
    }

    def is_name(phrase: str) -> bool:
        return phrase.replace("- ", " ") in names

    start = text.index(mention)
    ((begin, end),) = composites.widen(text, [(start, start + len(mention))], is_name)
    assert composites.parts_of(text[begin:end], is_name) == parts
