"""Texts of strangers as they may be shown: nothing in them moves a cursor or turns a line."""

import unicodedata

_BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: str) -> str:
    r"""Return the text with control and direction characters written out; line ends are blanks.

    >>> visible("tea\x1b[2J")
    'tea\\x1b[2J'
    """
    return "".join(
        c if unicodedata.category(c) not in ("Cc", "Cs") and c not in _BIDI else _escape(c)
        for c in text
    )


def _escape(char: str) -> str:
    return " " if char in "\n\r\t" else char.encode("unicode_escape", "surrogatepass").decode()
