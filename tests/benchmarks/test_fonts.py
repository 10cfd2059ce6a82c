"""The font of Chinese labels: it has the glyphs, or one error says what to install."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import pytest
from fontTools.ttLib import TTFont

from benchmarks import fonts
from core.files import InputError

DEJAVU = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"


@pytest.fixture
def font() -> Path:
    fonts.chinese_font.cache_clear()
    return fonts.chinese_font()  # there is one: a package of the project brings it


def test_the_chosen_font_draws_every_label(font: Path) -> None:
    """Asked of another reader of fonts than the one that chose it."""
    glyphs = TTFont(font, fontNumber=0).getBestCmap()
    assert all(glyphs.get(ord(c), ".notdef") != ".notdef" for c in fonts.SAMPLE)
    assert fonts.missing(font, fonts.SAMPLE) == ""
    assert fonts.label("贫血 [ENT]", font) == "贫血 [ENT]"


def test_what_a_font_lacks_is_told() -> None:
    assert fonts.missing(DEJAVU, "a贫b血") == "贫血"
    assert fonts.label("a贫", DEJAVU) == "aU+8D2B"
    assert fonts.missing(Path(__file__), "ab") == "ab"  # no font at all


def test_without_a_font_one_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    fonts.chinese_font.cache_clear()
    monkeypatch.setattr(fonts, "installed", lambda: [DEJAVU])
    monkeypatch.setattr(fonts, "PACKAGE", "no_such_package")
    with pytest.raises(InputError, match=r"`pip install no-such-package` in \.venv, or .*fonts-noto-cjk"):
        fonts.chinese_font()


def test_the_packages_font_is_found_without_importing_it(
    font: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fonts.chinese_font.cache_clear()
    folder = tmp_path / "kepl_fake_fonts"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / fonts.FILE).symlink_to(font)
    monkeypatch.setattr(fonts, "installed", list)
    monkeypatch.setattr(fonts, "PACKAGE", folder.name)
    monkeypatch.syspath_prepend(tmp_path)
    assert fonts.chinese_font() == folder / fonts.FILE and folder.name not in sys.modules
    fonts.chinese_font.cache_clear()


def test_installed_fonts_come_in_a_fixed_order(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["/f/LastResort.otf", "/f/NotoSerifCJK.ttc", "/f/NotoSansCJK-Bold.ttc", "/f/NotoSansCJK-Regular.ttc"]
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: names)
    assert [p.name for p in fonts.installed()] == [
        "NotoSansCJK-Regular.ttc",
        "NotoSansCJK-Bold.ttc",
        "NotoSerifCJK.ttc",
    ]
