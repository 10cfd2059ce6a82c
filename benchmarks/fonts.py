"""A font for Chinese labels: an installed one, else the one of a package; never one that draws boxes.

matplotlib keeps a list of fonts from the day it first ran; what was installed since is not in it, so the system's folders
are looked through instead.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

from core.files import InputError

#: A font is taken when it has all of these: simplified characters, marks, letters and digits.
SAMPLE = "再生障碍性贫血与丙肝患者的治疗，。：（）、ABCxyz0189[]%"
PACKAGE, FILE = "pylopdf_fonts_zh_cn", "NotoSansSC-Regular.otf"  # Noto Sans SC, SIL Open Font License 1.1


def missing(path: Path, text: str) -> str:
    """The characters of `text` that the font at `path` has no glyph for; all of them where it is no font."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(str(path))
    except (OSError, RuntimeError):  # a font of bitmaps only, or a broken file
        return text
    return "".join(c for c in text if not font.get_char_index(ord(c)))


def installed() -> list[Path]:
    """The system's font files: plain weights of sans-serif fonts first, otherwise by name."""
    from matplotlib import font_manager

    def order(path: Path) -> tuple[bool, bool, str]:
        name = path.name.lower()
        return "serif" in name or "ming" in name or "song" in name, "bold" in name or "light" in name, name

    # Last Resort has a glyph for everything: a box
    paths = [Path(p) for p in font_manager.findSystemFonts()]
    return sorted((p for p in paths if "lastresort" not in p.name.lower()), key=order)


def packaged() -> list[Path]:
    """The font of the package, where it is installed. Finding it imports nothing."""
    spec = importlib.util.find_spec(PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return [file for place in places if (file := Path(place) / FILE).is_file()]


@cache
def chinese_font() -> Path:
    """A font file that has all of SAMPLE. Raises InputError when there is none."""
    for path in (*installed(), *packaged()):
        if not missing(path, SAMPLE):
            return path
    raise InputError(
        "no font with Chinese characters, so labels would be boxes. Install one: "
        f"`pip install {PACKAGE.replace('_', '-')}` in .venv, or the system's package fonts-noto-cjk."
    )


def label(text: str, path: Path) -> str:
    """`text` as `path` can draw it: a character that it lacks is written as its number (U+9FA6)."""
    lacking = set(missing(path, text))
    return "".join(f"U+{ord(c):04X}" if c in lacking else c for c in text)
