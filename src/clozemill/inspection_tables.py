"""Instances as a person reads them: A and B, and what each variant hides."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

from rich.console import Group
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from clozemill.pipeline.figures import count
from clozemill.pipeline.inspection import InstanceView, SelectedPosition, SpanView
from clozemill.pipeline.inspection_text import describe_instance, describe_span
from clozemill.pipeline.tokenizer_files import SPECIAL
from clozemill.pipeline.visible import visible
from clozemill.printing import PLAIN_WIDTH
from clozemill.printouts import Printout, render

_STYLES = {"mask": "bold reverse", "random": "bold red", "keep": "underline"}

_MOST_CHARACTERS = 2_000
# Of one sentence: a file without a blank is one, and nobody reads it to its end.

LEGEND = "{x -> y} hides x and shows y; {x =} is to be predicted but shown as it is."
"""What the braces in a variant mean."""


def instances_printout(
    views: Sequence[InstanceView],
    *,
    width: int = PLAIN_WIDTH,
    is_terminal: bool = False,
    most_variants: int | None = None,
) -> Printout:
    """Return the instances.

    Whatever the texts hold is shown, not obeyed: markup is no markup, and control characters
    are written out.

    Args:
        views: From `Inspector.describe`.
        width: Columns to wrap at.
        is_terminal: Whether to colour.
        most_variants: Show no more variants of an instance to a person; by default all.
    """
    parts: list[Group | Text] = [_instance(view, most_variants) for view in views]
    if any(variant for view in views for variant in view.variants):
        parts.append(Text(LEGEND, style="dim"))
    return Printout(
        data={"instances": [dataclasses.asdict(view) for view in views]},
        text=render(*parts, width=width, is_terminal=is_terminal),
    )


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
