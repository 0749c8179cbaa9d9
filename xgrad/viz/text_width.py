"""width: measures texts by a table of glyph widths, so that a layout needs no font and no browser.

The tables are Helvetica's, whose widths Arial, Liberation Sans and Nimbus Sans share, in thousandths of the font
size.  A page may show another font: an SVG text says the width that was measured (`textLength`), and is fitted to it.
`shortened` cuts a long text in its middle.
"""

import functools
import unicodedata

FAMILY = "Helvetica, Arial, 'Liberation Sans', 'Nimbus Sans', sans-serif"

# Glyphs from the space on, in the order of ASCII.
_REGULAR = (
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278,  # space to /
    556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556,  # 0 to ?
    1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778,  # @ to O
    667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556,  # P to _
    333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556,  # ` to o
    556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,  # p to ~
)  # fmt: skip
_BOLD = (
    278, 333, 474, 556, 556, 889, 722, 238, 333, 333, 389, 584, 278, 333, 278, 278,
    556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 333, 333, 584, 584, 584, 611,
    975, 722, 722, 722, 722, 667, 611, 778, 722, 278, 556, 722, 611, 833, 722, 778,
    667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 333, 278, 333, 584, 556,
    333, 556, 611, 556, 611, 556, 333, 611, 611, 278, 278, 556, 278, 889, 611, 611,
    611, 611, 389, 556, 333, 611, 556, 778, 556, 556, 500, 389, 280, 389, 584,
)  # fmt: skip
_OTHERS = {"×": 584, "→": 1000, "←": 1000, "…": 1000, "·": 278, "–": 556, "│": 260, "±": 584}


@functools.lru_cache(maxsize=4096)
def width(text: str, size: float, bold: bool = False) -> float:
    """Return the width of one line of text in a font of `size`, in the unit of `size`.

    >>> width("ii", 10), width("mm", 10)
    (4.44, 16.66)
    """
    table = _BOLD if bold else _REGULAR
    return round(sum(_glyph(character, table) for character in text) * size / 1000, 2)


def _glyph(character: str, table: tuple[int, ...]) -> int:
    place = ord(character) - 32
    if 0 <= place < len(table):
        return table[place]
    if character in _OTHERS:
        return _OTHERS[character]
    if unicodedata.combining(character):
        return 0
    return 1000 if unicodedata.east_asian_width(character) in "WF" else 667


def shortened(text: str, most: int = 44) -> str:
    """Return the text, with an ellipsis in the middle if it has more than `most` characters.

    >>> shortened("abcdefghij", 5)
    'ab…ij'
    """
    if len(text) <= most:
        return text
    left = most // 2
    return f"{text[:left]}…{text[len(text) - (most - 1 - left) :]}"
