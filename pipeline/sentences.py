"""Where a document's sentences begin and end."""

import re

from clozemill.pipeline.config import BuildConfig

WRAP_WIDTH = 100
"""Lines of a wrapped text are no longer than this, but for one in `LINES_PER_LONG_ONE`."""

LINES_PER_LONG_ONE = 20

LEAST_WRAPPED_MEAN = 45
"""Lines of a wrapped paragraph are this long on average; those of verse or dialogue are not."""

_SENTENCE_END = tuple(".!?:;\"')]\u2026\u201d\u2019")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


def sentence_rule(config: BuildConfig) -> str:
    """Return what decides the sentences: `given`, one a line, or the splitter's language.

    Part of the instance fingerprint instead of `--layout`, so that the same documents from
    other formats make the same dataset.
    """
    return "given" if config.layout == "sentences" else f"sentencex:{config.language}"


def find_sentences(text: str, rule: str) -> list[str]:
    """Return the sentences of a normalised text in order; some may hold no token.

    The splitter sees a paragraph at a time: over a whole document a quotation mark that is never
    closed would keep it from cutting for pages.

    Args:
        text: The document's text.
        rule: The value of `sentence_rule`.

    >>> find_sentences("The tea is cold. Is it?", "sentencex:en")
    ['The tea is cold. ', 'Is it?']
    >>> find_sentences("The tea is cold. Is it?", "given")
    ['The tea is cold. Is it?']
    """
    if rule == "given":
        return text.split("\n")
    import sentencex

    language = rule.removeprefix("sentencex:")
    return [
        sentence
        for paragraph in find_paragraphs(text)
        for sentence in sentencex.segment(language, paragraph)
    ]


def find_paragraphs(text: str) -> list[str]:
    r"""Return the paragraphs of a text: its lines, or the blocks between blank lines if wrapped.

    >>> find_paragraphs("One paragraph.\nAnother.")
    ['One paragraph.', 'Another.']
    """
    lines = text.split("\n")
    return _BLANK_LINE.split(text) if _are_hard_wrapped(lines) else lines


def is_hard_wrapped(text: str) -> bool:
    r"""Return whether the lines of a text were broken to fit a page.

    So it is if hardly any line is longer than `WRAP_WIDTH`, and of the lines that run into another
    one most are long and few end like a sentence.

    >>> is_hard_wrapped("It was a bright cold day in April; and all the\nclocks struck thirteen.")
    True
    >>> is_hard_wrapped("- Would you like some tea, or rather coffee?\n- No, thank you. Not today.")
    False
    """
    return _are_hard_wrapped(text.split("\n"))


def _are_hard_wrapped(lines: list[str]) -> bool:
    num_long = sum(len(line) > WRAP_WIDTH for line in lines)
    if len(lines) == 1 or num_long * LINES_PER_LONG_ONE > len(lines):
        return False
    inner = [
        line
        for line, following in zip(lines, lines[1:], strict=False)
        if line.strip() and following.strip()
    ]
    num_ended = sum(line.rstrip().endswith(_SENTENCE_END) for line in inner)
    is_long = sum(map(len, inner)) >= LEAST_WRAPPED_MEAN * len(inner)
    return bool(inner) and is_long and 2 * num_ended < len(inner)
