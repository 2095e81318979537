"""Where a document's sentences begin and end."""

import functools
import itertools
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.instances import starts_of
from clozemill.pipeline.jit import count_ones, lean_kernel, load_word

WRAP_WIDTH = 100
"""Lines of a wrapped text are no longer than this, but for one in `LINES_PER_LONG_ONE`."""

LINES_PER_LONG_ONE = 20

LEAST_WRAPPED_MEAN = 45
"""Lines of a wrapped paragraph are this long on average; those of verse or dialogue are not."""

# Of the lines of wrapped texts three in four or more go on in the middle of a sentence (a novel
# 92 %, one with short paragraphs 79 %, a specification with tables 75 %), of a list's none.

_SENTENCE_END = tuple(".!?:;\"')]\u2026\u201d\u2019")
_GIVEN = "given"
_LOW_BITS = np.uint64(0x0101010101010101)
# Blanks and tabs only: other white space may be a token, and belongs to the sentence before it.
_BLANK_LINE = re.compile(r"\n[ \t]*\n")


def sentence_rule(config: BuildConfig) -> str:
    """Return what decides the sentences: `given`, one a line, or the splitter's language.

    Part of the instance fingerprint instead of `--layout`, so that the same documents from
    other formats make the same dataset.
    """
    return _GIVEN if config.layout == "sentences" else f"sentencex:{config.language}"


def find_sentences(text: str, rule: str) -> list[str]:
    """Return the sentences of a normalised text in order; some may hold no token.

    Joined they are the text: white space belongs to the sentence before it.

    Args:
        text: The document's text.
        rule: The value of `sentence_rule`.

    >>> find_sentences("The tea is cold. Is it?", "sentencex:en")
    ['The tea is cold. ', 'Is it?']
    >>> find_sentences("The tea is cold. Is it?", "given")
    ['The tea is cold. Is it?']
    """
    ends = itertools.accumulate(sentence_lengths(text, rule), initial=0)
    return [text[start:end] for start, end in itertools.pairwise(ends)]


def sentence_lengths(text: str, rule: str) -> list[int]:
    """Return how many characters each of `find_sentences` has.

    The splitter sees a paragraph at a time: over a whole document a quotation mark that is never
    closed would keep it from cutting for pages.
    """
    paragraphs, gaps = _lines(text)
    split = _one_sentence
    if rule != _GIVEN:
        split = functools.partial(_split, rule.removeprefix("sentencex:"))
        if is_hard_wrapped(paragraphs):
            paragraphs, gaps = _blocks(text)
    lengths: list[int] = []
    for paragraph, gap in zip(paragraphs, gaps, strict=True):
        lengths += map(len, split(paragraph))
        if lengths:
            lengths[-1] += gap
        elif gap:
            lengths.append(gap)
    if sum(lengths) != len(text):
        # The splitter is known to lose nothing; if it ever does, its cuts cannot be placed.
        lengths = [len(paragraph) + gap for paragraph, gap in zip(paragraphs, gaps, strict=True)]
    return lengths


def byte_starts(text: NDArray[np.uint8], lengths: Sequence[int]) -> NDArray[np.int64]:
    """Return where runs of characters start in UTF-8 that follow each other, and where it ends.

    Args:
        text: All the bytes.
        lengths: The characters of each run; together those of the text.

    >>> byte_starts(np.frombuffer("caf\u00e9 au lait".encode(), np.uint8), [5, 7])
    array([ 0,  6, 13])
    """
    starts = starts_of(lengths)
    if starts[-1] < len(text):
        _move_to_bytes(text, starts)
    return starts


@lean_kernel
def _move_to_bytes(text: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
    """Turn numbers of characters, ascending, into numbers of bytes."""
    place = num_characters = 0
    for i in range(len(starts)):
        # Every byte begins a character but those whose highest bits are 10.
        while place + 8 <= len(text):
            eight = load_word(text, place)
            found = 8 - count_ones(eight >> np.uint64(7) & ~(eight >> np.uint64(6)) & _LOW_BITS)
            if num_characters + found > starts[i]:
                break
            num_characters += found
            place += 8
        while place < len(text):
            is_first = text[place] & 0xC0 != 0x80
            if is_first and num_characters == starts[i]:
                break
            num_characters += is_first
            place += 1
        starts[i] = place


def _split(language: str, text: str) -> list[str]:
    """Return the sentences of a paragraph; it is one where the splitter fails on it."""
    import sentencex

    try:
        sentences: list[str] = sentencex.segment(language, text)
    except BaseException as error:
        # Its panics are no Exception, and their class cannot be imported. Known of `A\u00a0.`, a
        # capital before a blank beyond ASCII and a full stop.
        if type(error).__name__ != "PanicException":
            raise
        return [text]
    return sentences


def _one_sentence(text: str) -> list[str]:
    return [text]


def _lines(text: str) -> tuple[list[str], list[int]]:
    """Return the lines of a text, and how many characters stand after each before the next."""
    lines = text.split("\n")
    return lines, [1] * (len(lines) - 1) + [0]


def _blocks(text: str) -> tuple[list[str], list[int]]:
    """Return the blocks between blank lines, and how many characters stand after each."""
    gaps = [match.span() for match in _BLANK_LINE.finditer(text)]
    starts = [0, *(end for _, end in gaps)]
    ends = [*(start for start, _ in gaps), len(text)]
    blocks = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    return blocks, [*(end - start for start, end in gaps), 0]


def is_hard_wrapped(lines: Sequence[str]) -> bool:
    """Return whether the lines of a text were broken to fit a page.

    So it is if hardly any line is longer than `WRAP_WIDTH`, and of the lines that run into another
    one most are long, under half end like a sentence, and most of the next begin in the middle of
    one: with a letter that is no capital.

    >>> is_hard_wrapped(["It was a bright cold day in April; and all the", "clocks struck 13."])
    True
    >>> is_hard_wrapped(["- Would you like some tea, or rather coffee?", "- No, thanks. Not yet."])
    False
    >>> is_hard_wrapped(["Sarner Aa, a river of Switzerland, tributary of Lake Lucerne"] * 3)
    False
    """
    num_long = sum(len(line) > WRAP_WIDTH for line in lines)
    if len(lines) == 1 or num_long * LINES_PER_LONG_ONE > len(lines):
        return False
    inner = [
        (line, following)
        for line, following in zip(lines, lines[1:], strict=False)
        if line.strip() and following.strip()
    ]
    num_ended = sum(line.rstrip().endswith(_SENTENCE_END) for line, _ in inner)
    num_begun = sum(_goes_on(following) for _, following in inner)
    is_long = sum(len(line) for line, _ in inner) >= LEAST_WRAPPED_MEAN * len(inner)
    return bool(inner) and is_long and 2 * num_ended < len(inner) <= 2 * num_begun


def _goes_on(line: str) -> bool:
    """Return whether a line may begin in the middle of a sentence."""
    first = line.lstrip()[0]
    return first.isalpha() and not first.isupper()
