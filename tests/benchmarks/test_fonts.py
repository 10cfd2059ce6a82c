"""The font of Chinese labels: it has the glyphs, or one error says what to install."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import pytest
from fontTools.ttLib import TTFont
from matplotlib import font_manager

from benchmarks import fonts
from core.files import InputError

DEJAVU = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
SAMPLE = (  # simplified characters, marks, letters and digits
    "再生障碍性贫血与丙肝患者的治疗，。：（）、ABCxyz0189[]%"
)


@pytest.fixture
def font() -> Path:
    fonts.chinese_font.cache_clear()
    return fonts.chinese_font()  # a package that the project depends on brings it


def test_the_font_draws_every_label(font: Path) -> None:
    """Read by another reader of fonts than the one that draws."""
    glyphs = TTFont(font, fontNumber=0).getBestCmap()
    assert all(glyphs.get(ord(c), ".notdef") != ".notdef" for c in SAMPLE)
    assert fonts.label("贫血 [ENT]", font) == "贫血 [ENT]" and fonts.label(SAMPLE, font) == SAMPLE


def test_a_character_that_a_font_lacks_is_written_as_its_number() -> None:
    assert fonts.label("a贫", DEJAVU) == "aU+8D2B"


def test_matplotlib_finds_the_font_by_its_name(font: Path) -> None:
    name = font_manager.FontProperties(fname=str(font)).get_name()
    assert Path(font_manager.findfont(name, fallback_to_default=False)).samefile(font)


def test_without_the_package_one_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fonts.chinese_font.cache_clear()
    monkeypatch.setattr(fonts, "PACKAGE", "no_such_package")
    with pytest.raises(InputError, match=r"`pip install no-such-package` in \.venv"):
        fonts.chinese_font()


def test_the_packages_font_is_found_without_importing_it(
    font: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fonts.chinese_font.cache_clear()
    folder = tmp_path / "kepl_fake_fonts"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / fonts.FILE).symlink_to(font)
    monkeypatch.setattr(fonts, "PACKAGE", folder.name)
    monkeypatch.syspath_prepend(tmp_path)
    assert fonts.chinese_font() == folder / fonts.FILE and folder.name not in sys.modules
    fonts.chinese_font.cache_clear()
