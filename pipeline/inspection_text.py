"""Instances as text for a terminal, or for a file where there is none."""

import io
import unicodedata
from collections import Counter
from collections.abc import Sequence

from rich.console import Console, Group
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from clozemill.pipeline.figures import count
from clozemill.pipeline.inspection import InstanceView, SelectedPosition, SpanView
from clozemill.pipeline.tokenizer_files import SPECIAL

_STYLES = {"mask": "bold reverse", "random": "bold red", "keep": "underline"}
_BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

_MOST_CHARACTERS = 2_000
# Of one sentence: a file without a blank is one, and nobody reads it to its end.

LEGEND = "{x -> y} hides x and shows y; {x =} is to be predicted but shown as it is."
"""What the braces in a variant mean."""


def render_instances(
    views: Sequence[InstanceView],
    *,
    width: int = 100,
    is_terminal: bool = False,
    most_variants: int | None = None,
) -> str:
    """Return the instances as text.

    Whatever the texts hold is shown, not obeyed: markup is no markup, and control characters
    are written out.

    Args:
        views: From `Inspector.describe`.
        width: Columns to wrap at.
        is_terminal: Whether to colour.
        most_variants: Show no more variants of an instance; by default all.
    """
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=is_terminal,
        no_color=not is_terminal,
        color_system="standard" if is_terminal else None,
        highlight=False,
        emoji=False,
        markup=False,
    )
    for view in views:
        console.print(_instance(view, most_variants))
    if any(variant for view in views for variant in view.variants):
        console.print(Text(LEGEND, style="dim"))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def visible(text: str) -> str:
    r"""Return the text with control and direction characters written out.

    >>> visible("tea\x1b[2J")
    'tea\\x1b[2J'
    """
    return "".join(
        c if unicodedata.category(c) not in ("Cc", "Cs") and c not in _BIDI else _escape(c)
        for c in text
    )


def _escape(char: str) -> str:
    return " " if char in "\n\r\t" else char.encode("unicode_escape", "surrogatepass").decode()


def _instance(view: InstanceView, most_variants: int | None) -> Group:
    parts: list[Rule | Text | Padding] = [
        Rule(
            Text(f"instance {view.instance_id}, number {view.number:,} of {view.split}"),
            align="left",
            characters="-",
        ),
        Text(describe_instance(view)),
    ]
    for span in view.spans:
        parts += [Text(), Text(describe_span(span), style="bold"), *_span_text(span)]
    segments = ("A", "B") if view.next_sentence else ("tokens",)
    borders = [1, view.segment_b_start, len(view.tokens)]
    parts.append(Text())
    for name, begin, end in zip(segments, borders, borders[1:], strict=False):
        tokens = _tokens(view.tokens[begin : end - 1], begin, {})
        parts.append(Text.assemble((f"{name} as read: ", "bold"), tokens))
    variants = view.variants[:most_variants]
    for number, variant in enumerate(variants):
        parts += [Text(), Text(_counts(number, variant), style="bold")]
        hidden = {item.position: item for item in variant}
        parts.append(Padding(_tokens(view.tokens, 0, hidden), (0, 0, 0, 2)))
    if len(variants) < len(view.variants):
        parts.append(Text(f"... and {count(len(view.variants) - len(variants), 'more variant')}"))
    return Group(*parts, Text())


def describe_instance(view: InstanceView) -> str:
    """Return length, source and label of an instance, as a line."""
    parts = [f"{len(view.tokens)} tokens", f"source {visible(view.source) or '(none)'}"]
    if view.next_sentence == "next":
        parts.append("B is next (label 0)")
    elif view.next_sentence:
        why = ", as A was all there was" if view.is_forced else ""
        parts.append(f"B is random (label 1{why})")
    return "; ".join(parts)


def describe_span(span: SpanView) -> str:
    """Return which sentences of which document a span is, as a line."""
    last = span.first_sentence + span.num_sentences
    which = (
        f"sentence {last}"
        if span.num_sentences == 1
        else (f"sentences {span.first_sentence + 1} to {last}")
    )
    text = f"{span.segment}: {which} of {span.num_document_sentences}"
    text += f" of document {span.document_id}"
    if span.external_id is not None:
        text += f" ({visible(span.external_id)})"
    if span.file is not None:
        text += f", {visible(span.file)} at {span.offset}"
    if span.cut_front or span.cut_back:
        text += f"; cut: {count(span.cut_front, 'token')} in front, {span.cut_back} at the end"
    return text


def _span_text(span: SpanView) -> list[Text | Padding]:
    if span.note:
        return [Text(f"  (no text: {visible(span.note)})", style="dim")]
    return [Padding(Text(_clipped(visible(text).strip())), (0, 0, 0, 2)) for text in span.sentences]


def _clipped(text: str) -> str:
    rest = len(text) - _MOST_CHARACTERS
    return text if rest <= 0 else f"{text[:_MOST_CHARACTERS]}... ({rest:,} more characters)"


def _counts(number: int, variant: tuple[SelectedPosition, ...]) -> str:
    counts = Counter(item.action for item in variant)
    each = ", ".join(f"{counts[action]} {action}" for action in _STYLES)
    return f"variant {number}: {len(variant)} selected ({each})"


def _tokens(tokens: Sequence[str], first: int, hidden: dict[int, SelectedPosition]) -> Text:
    """Return tokens as text; a piece joins the one before unless either is hidden or special."""
    text = Text()
    is_apart = True
    for position, token in enumerate(tokens, first):
        item = hidden.get(position)
        is_joined = token.startswith("##") and not item and not is_apart
        if len(text) and not is_joined:
            text.append(" ")
        if item is None:
            text.append(visible(token.removeprefix("##") if is_joined else token))
        else:
            arrow = " =" if item.action == "keep" else f" -> {visible(item.shown)}"
            text.append(f"{{{visible(item.original)}{arrow}}}", style=_STYLES[item.action])
        is_apart = item is not None or bool(SPECIAL.fullmatch(token))
    return text
