"""What a user should hear about a finished build: nothing is wrong, but it may not be meant."""

import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.figures import count, percent
from clozemill.pipeline.inputs import Inputs
from clozemill.pipeline.ledger import from_json, total
from clozemill.pipeline.manifest import Manifest
from clozemill.pipeline.mask_rules import default_max_predictions
from clozemill.pipeline.read_records import (
    BAD_JSON,
    BAD_RECORD,
    BAD_UTF8,
    DOCUMENTS_READ,
    EMPTY_TEXT,
    MISSING_TEXT,
    NULL_TEXT,
    RECORDS_READ,
    REPLACED_UTF8,
)
from clozemill.pipeline.tokenizer import PretrainingTokenizer

LEAST_NEXT_SHARE = 0.25
"""Below this share of next segments next-sentence prediction can hardly be learnt."""

MOST_CUT_SHARE = 0.4
"""Share of the tokens that pairs may cut without a notice: the long sentences of old speeches lose
14 % at 128 tokens and 35 % at 64."""

MOST_UNKNOWN_SHARE = 0.01
MOST_LOST_SHARE = 0.01
"""Shares of the tokens that pass without a notice: `[UNK]`, and lost with long sentences."""

_MOST_NAMES = 5
_MOST_EXAMPLES = 3
_LEFT_OUT = {
    NULL_TEXT: "with a null text",
    MISSING_TEXT: "without the text field",
    EMPTY_TEXT: "with an empty text",
    BAD_UTF8: "not UTF-8",
    BAD_JSON: "not JSON",
    BAD_RECORD: "not an object with a text",
}


def build_notices(
    config: BuildConfig, manifest: Manifest, *, num_special_in_text: int
) -> tuple[str, ...]:
    """Return a line for everything about the build that its user may not expect."""
    notices = [*_mask_notices(config, manifest), *_label_notices(config, manifest)]
    notices += _token_notices(config, manifest, num_special_in_text)
    notices += _record_notices(config, manifest.ledger["records"][""])
    return tuple(notices)


def input_notices(config: BuildConfig, inputs: Inputs) -> Iterator[str]:
    """Yield a line for everything about the files read that their user may not expect."""
    if config.validation:
        # A pattern that the shell expanded after --validation is training text but for one file.
        fraction = config.validation_fraction
        is_set = fraction != BuildConfig().validation_fraction
        yield (
            f"{count(len(inputs.training.files), 'file')} read for training and "
            f"{count(len(inputs.validation.files), 'file')} for validation"
            + (f"; validation_fraction {fraction} is not used." if is_set else ".")
        )
    if inputs.ignored:
        yield _ignored_notice((*config.inputs, *config.validation), inputs.ignored)


def _ignored_notice(inputs: Sequence[str], ignored: Sequence[str]) -> str:
    endings = Counter(map(_ending, ignored)).most_common()
    kinds = [f"{num:,} {ending}" for ending, num in endings[:_MOST_NAMES]]
    rest = sum(num for _, num in endings[_MOST_NAMES:])
    kinds += [f"{rest:,} others"] * bool(rest)
    examples = ", ".join(_below_inputs(path, inputs) for path in ignored[:_MOST_EXAMPLES])
    return (
        "not read, for their endings, as they are hidden or because clozemill wrote them: "
        f"{', '.join(kinds)}; such as {examples}."
    )


def _ending(path: str) -> str:
    if posixpath.basename(path.rstrip("/")).startswith("."):
        return "hidden"
    if path.endswith("/"):
        return "of clozemill's folders"
    return posixpath.splitext(path)[1] or "without ending"


def _below_inputs(path: str, inputs: Sequence[str]) -> str:
    """Return a path as it stands below the folder or pattern that brought it in."""
    for name in inputs:
        fixed = re.split(r"[*?\[]", name)[0]
        root = fixed if fixed == name else posixpath.dirname(fixed)
        root = root if "://" in root else os.path.abspath(root)
        if path.startswith(root.rstrip("/") + "/"):
            return path.removeprefix(root.rstrip("/") + "/")
    return path


def tokenizer_notices(tokenizer: PretrainingTokenizer) -> Iterator[str]:
    """Yield how a vocabulary was understood that came alone."""
    if tokenizer.is_guessed:
        case = "uncased" if tokenizer.is_lower_case else "cased"
        accents = "dropped" if tokenizer.strips_accents else "kept"
        yield (
            f"the vocabulary was read as {case}, accents {accents}, as its pieces are; the "
            "tokenizer_config.json of a tokenizer folder would say so itself."
        )


def _record_notices(config: BuildConfig, records: dict[str, int]) -> Iterator[str]:
    num_documents = records[DOCUMENTS_READ]
    left_out = [
        f"{records[fate]} {meaning}" for fate, meaning in _LEFT_OUT.items() if records.get(fate)
    ]
    if left_out:
        num_records = records[RECORDS_READ]
        yield (
            f"{num_records - num_documents:,} of {num_records:,} records are in no document: "
            f"{', '.join(left_out)}."
        )
    if records.get(REPLACED_UTF8):
        yield f"{records[REPLACED_UTF8]:,} lines had bytes that are not UTF-8; U+FFFD is there now."


def _mask_notices(config: BuildConfig, manifest: Manifest) -> Iterator[str]:
    cap = config.max_predictions_per_seq
    wanted = default_max_predictions(config.max_seq_length, config.masked_lm_prob)
    masks = manifest.ledger["masks"]["train"]
    if cap is not None and cap < wanted and masks["maskable"]:
        yield (
            f"max_predictions_per_seq {cap} is below the {wanted} that masked_lm_prob "
            f"{config.masked_lm_prob} asks for at {config.max_seq_length} tokens: "
            f"{percent(masks['selected'] / masks['maskable'])} of the tokens are selected."
        )


def _label_notices(config: BuildConfig, manifest: Manifest) -> Iterator[str]:
    counts = manifest.ledger["instances"]["train"]
    if not config.has_pairs or not counts["all"]:
        return
    share = counts["next"] / counts["all"]
    if share < LEAST_NEXT_SHARE:
        forced = counts["forced_random"] / counts["all"]
        yield (
            f"WARNING: only {percent(share)} of the pairs are next sentences, as "
            f"{percent(forced)} come from a chunk of one sentence, which can only have a random "
            "B. Next-sentence prediction can hardly be learnt from this: check where documents end "
            "(--layout), or use --recipe roberta-full."
        )


def _token_notices(
    config: BuildConfig, manifest: Manifest, num_special_in_text: int
) -> Iterator[str]:
    passes = manifest.ledger["pass_tokens"]["train"]
    if passes.get("cut", 0) > MOST_CUT_SHARE * passes["own"]:
        yield (
            f"{percent(passes['cut'] / passes['own'])} of the tokens are in no instance, as "
            f"sentences are long for max_seq_length {config.max_seq_length} and pairs are cut to "
            "it: raise it, check --layout and --language, or use --recipe roberta-full."
        )
    lost = passes.get("dropped", 0) + passes.get("truncated", 0)
    if lost > MOST_LOST_SHARE * passes["own"]:
        yield (
            f"{percent(lost / passes['own'])} of the tokens are in no instance: sentences too long "
            "for one were dropped or truncated; --long-sentences split keeps them."
        )
    ledger = from_json(manifest.ledger)
    tokens, unknown = total(ledger, "document_tokens"), total(ledger, "unknown_tokens")
    if unknown > MOST_UNKNOWN_SHARE * tokens:
        yield (
            f"{percent(unknown / tokens)} of the tokens are [UNK]: the tokenizer does not know "
            "this text's characters or words; train one with clozemill vocab."
        )
    if num_special_in_text:
        yield f"{num_special_in_text} special tokens in running text became [UNK]."
