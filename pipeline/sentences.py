"""Where a document's sentences begin and end."""

from clozemill.pipeline.config import BuildConfig


def sentence_rule(config: BuildConfig) -> str:
    """Return what decides the sentences: `given`, one a line, or the splitter's language.

    Part of the instance fingerprint instead of `--layout`, so that the same documents from
    other formats make the same dataset.
    """
    return "given" if config.layout == "sentences" else f"sentencex:{config.language}"


def find_sentences(text: str, rule: str) -> list[str]:
    """Return the sentences of a normalised text in order; some may hold no token.

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

    sentences: list[str] = sentencex.segment(rule.removeprefix("sentencex:"), text)
    return sentences
