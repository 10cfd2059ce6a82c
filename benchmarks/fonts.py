"""The font of Chinese labels: that of a package, so that figures are the same on every machine and
no label is boxes."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

from core.files import InputError

# Noto Sans SC, SIL Open Font License 1.1
PACKAGE, FILE = "pylopdf_fonts_zh_cn", "NotoSansSC-Regular.otf"


@cache
def chinese_font() -> Path:
    """The font's file; matplotlib finds it by its name from now on. Raises InputError where the
    package is missing.

    Finding it imports nothing of the package.
    """
    from matplotlib.font_manager import fontManager

    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (file := Path(folder) / FILE).is_file():
            fontManager.addfont(file)
            return file
    raise InputError(
        "no font with Chinese characters, so labels would be boxes. Install it: "
        f"`pip install {PACKAGE.replace('_', '-')}` in .venv."
    )


def label(text: str, path: Path) -> str:
    """`text` as the font at `path` can draw it: a character that it lacks is written as its number
    (U+9FA6)."""
    from matplotlib.ft2font import FT2Font

    font = FT2Font(str(path))
    return "".join(c if font.get_char_index(ord(c)) else f"U+{ord(c):04X}" for c in text)
