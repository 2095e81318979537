"""Words that a corpus does not hold yet, in the shapes that new words of real text have.

The shares below were counted on the corpora: white-space words that first appear in the last
quarter of the shuffled documents. Most are known words beside other punctuation, or joined.
"""

import itertools
import random
import re
from collections.abc import Callable, Iterable, Sequence

_CORE = re.compile(r"[^!-/:-@\[-`{-~]+")
"""A run without ASCII punctuation."""

_ACCENTS = str.maketrans("aceinouy", "\u00e0\u00e7\u00e9\u00ef\u00f1\u00f6\u00fc\u00fd")
_WIDE_JOINERS = ("\u2014", "\u2013", "\u2019", "\u2026")
_WRAPPED_SHARE = 0.4
_MOST_TRIES = 20

_PAIRS = ("()", "[]", '""')
_UPSETTING = frozenset(".!?\"'()[]{}<>`")
"""Unpaired or at a word's end these change where sentences end far beyond the word."""


class FreshWords:
    """Makes words that are neither in a given vocabulary nor made before."""

    def __init__(self, words: Iterable[str], *, seed: int) -> None:
        """Learn stems, punctuation and joiners from the distinct words of real text."""
        self._random = random.Random(seed)
        self._taken = set(words)
        self._stems, self._wrappers, self._joiners = _learn(sorted(self._taken))
        kinds: tuple[tuple[Callable[[], str], float], ...] = (
            (self._with_punctuation, 0.43),
            (self._compound, 0.22),
            (self._letters, 0.12),
            (self._capitalised, 0.09),
            (self._other_case, 0.05),
            (self._beyond_ascii, 0.045),
            (self._with_digits, 0.03),
            (self._capitals, 0.015),
        )
        self._makers = [maker for maker, _ in kinds]
        self._ends = list(itertools.accumulate(share for _, share in kinds))

    def make(self) -> str:
        """Return a word that was not there before."""
        maker = self._random.choices(self._makers, cum_weights=self._ends)[0]
        for tries in itertools.count():
            word = maker() if tries < _MOST_TRIES else self._letters()
            if word not in self._taken:
                self._taken.add(word)
                return word
        raise AssertionError("counting never ends")

    def _stem(self) -> str:
        return self._stems[int(self._random.random() * len(self._stems))]

    def _spliced(self) -> str:
        """Return the start of one word with the end of another."""
        first, last = self._stem(), self._stem()
        start = 2 + int(self._random.random() * (len(first) - 1))
        length = 2 + int(self._random.random() * 4)
        return first[:start] + last[-length:]

    def _wrapped(self, core: str) -> str:
        before, after = self._wrappers[int(self._random.random() * len(self._wrappers))]
        return before + core + after

    def _perhaps_wrapped(self, core: str) -> str:
        return self._wrapped(core) if self._random.random() < _WRAPPED_SHARE else core

    def _with_punctuation(self) -> str:
        return self._wrapped(self._stem())

    def _compound(self) -> str:
        joiner = self._joiners[int(self._random.random() * len(self._joiners))]
        return self._perhaps_wrapped(self._stem() + joiner + self._stem())

    def _letters(self) -> str:
        return self._perhaps_wrapped(self._spliced())

    def _capitalised(self) -> str:
        return self._perhaps_wrapped(self._spliced().capitalize())

    def _other_case(self) -> str:
        stem = self._stem()
        return self._perhaps_wrapped(
            stem.upper() if self._random.random() < 0.3 else stem.capitalize()
        )

    def _beyond_ascii(self) -> str:
        kind = self._random.random()
        if kind < 0.5:
            return self._stem() + self._random.choice(_WIDE_JOINERS) + self._stem()
        if kind < 0.8:
            return self._perhaps_wrapped(self._spliced().translate(_ACCENTS))
        return f"\u201c{self._spliced()}\u201d"

    def _with_digits(self) -> str:
        digits = str(int(10 ** (1 + 6 * self._random.random())))
        letters = self._spliced()[:3]
        return self._perhaps_wrapped(
            self._random.choice((digits, letters.upper() + digits[:3], digits + letters))
        )

    def _capitals(self) -> str:
        return self._perhaps_wrapped(self._spliced()[:6].upper())


def _learn(words: Sequence[str]) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    """Return stems, what stands around one core, and what stands between two, by type."""
    stems: set[str] = set()
    wrappers: list[tuple[str, str]] = []
    joiners: list[str] = []
    for word in words:
        cores = list(_CORE.finditer(word))
        stems.update(core[0] for core in cores if _is_stem(core[0]))
        if len(cores) == 1 and cores[0][0] != word:
            wrapper = word[: cores[0].start()], word[cores[0].end() :]
            if _is_calm(*wrapper):
                wrappers.append(wrapper)
        elif len(cores) == 2:
            joiner = word[cores[0].end() : cores[1].start()]
            if _is_calm(joiner, ""):
                joiners.append(joiner)
    return sorted(stems), wrappers, joiners


def _is_calm(before: str, after: str) -> bool:
    """Whether punctuation around a word leaves the sentences around it alone."""
    if before[:1] + after[-1:] in _PAIRS:
        before, after = before[1:], after[:-1]
    return not _UPSETTING.intersection(before + after)


def _is_stem(core: str) -> bool:
    return core.isascii() and core.isalpha() and core.islower() and 3 <= len(core) <= 20
