"""Instances in words: length, label and origin, each as a line."""

from clozemill.pipeline.figures import count
from clozemill.pipeline.inspection import InstanceView, SpanView
from clozemill.pipeline.visible import visible


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
