"""What the verbs of the pipeline print: small tables, each with its JSON twin."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from clozemill.pipeline.build import BuildReport
from clozemill.pipeline.estimate import BuildEstimate
from clozemill.pipeline.figures import count, megabytes, percent
from clozemill.pipeline.ledger import from_json, total
from clozemill.pipeline.manifest import Manifest, dataset_folder, read_manifest
from clozemill.pipeline.tokenizer import PretrainingTokenizer
from clozemill.pipeline.verify import Finding
from clozemill.pipeline.vocab import VocabularyReport
from clozemill.printouts import Printout, new_table, render


def build_printout(report: BuildReport, out: str) -> Printout:
    """Return what a build did: documents, instances, labels, masks, sizes, speed."""
    manifest = report.manifest
    data = {
        "out": out,
        "was_finished": report.was_finished,
        "instances_digest": {n: s.instances_digest for n, s in manifest.splits.items()},
        "dataset_digest": {n: s.dataset_digest for n, s in manifest.splits.items()},
        "ledger": manifest.ledger,
        "label_expectations": manifest.label_expectations,
        "num_shards": len(manifest.shards),
        "num_bytes": sum(shard.num_bytes for shard in manifest.shards),
        "notices": list(report.notices),
        "seconds": report.seconds,
        "peak_process_bytes": report.peak_process_bytes,
    }
    if report.was_finished:
        return Printout(data=data, text=f"{out} already holds this dataset: nothing to do.\n")
    tables = [_documents_table(manifest), _instances_table(manifest)]
    return Printout(data=data, text=render(*tables, _legend(manifest), _last_line(report, out)))


def verify_printout(data: str, findings: Sequence[Finding]) -> Printout:
    """Return what is wrong with a dataset, a line each."""
    rows = [dataclasses.asdict(finding) for finding in findings]
    if findings:
        lines = [f"{finding.file}: {finding.problem}" for finding in findings]
        text = "\n".join([*lines, f"{data}: {count(len(findings), 'problem')}"])
    else:
        manifest = read_manifest(dataset_folder(data))
        instances = sum(entry.num_instances for entry in manifest.splits.values())
        text = (
            f"{data} is sound: {count(len(manifest.files), 'file')} and "
            f"{count(instances, 'instance')} are what was written, and keep every rule."
        )
    return Printout(data={"data": data, "findings": rows}, text=text + "\n")


def rewritten_printout(data: str, manifest: Manifest, out: str) -> Printout:
    """Return what stayed equal between a dataset and one made from it."""
    before = read_manifest(dataset_folder(data))
    rows = [
        {
            "split": name,
            "num_instances": entry.num_instances,
            "num_variants": entry.num_variants,
            "instances_digest": entry.instances_digest,
            "dataset_digest": entry.dataset_digest,
            "has_same_instances": entry.instances_digest == before.splits[name].instances_digest,
            "has_same_masks": entry.dataset_digest == before.splits[name].dataset_digest,
        }
        for name, entry in manifest.splits.items()
    ]
    lines = [
        f"{name}: {count(entry.num_instances, 'instance')} x "
        f"{count(entry.num_variants, 'variant')}; instances "
        + _sameness(entry.instances_digest, before.splits[name].instances_digest)
        + ", masks "
        + _sameness(entry.dataset_digest, before.splits[name].dataset_digest)
        for name, entry in manifest.splits.items()
    ]
    text = "\n".join([*lines, f"{out} is written."]) + "\n"
    return Printout(data={"out": out, "splits": rows}, text=text)


def _sameness(digest: str, digest_before: str) -> str:
    return "as before" if digest == digest_before else "new"


def estimate_printout(estimate: BuildEstimate) -> Printout:
    """Return what a build would cost."""
    minutes, seconds = divmod(round(estimate.num_seconds), 60)
    rows = [
        ("inputs", f"{count(estimate.num_files, 'file')}, {megabytes(estimate.num_input_bytes)}"),
        ("text", megabytes(estimate.num_text_bytes)),
        ("documents", f"{estimate.num_documents:,}"),
        ("instances", f"{estimate.num_instances:,}"),
        ("dataset", megabytes(estimate.num_dataset_bytes)),
        ("disk while building", f"{megabytes(estimate.num_work_bytes)} more"),
        ("free disk", megabytes(estimate.num_free_bytes)),
        ("time", f"{minutes} min {seconds} s with {count(estimate.workers, 'worker')}"),
    ]
    table = new_table("estimate", ["", ""], right=())
    for row in rows:
        table.add_row(*row)
    note = f"From a build of {megabytes(estimate.num_sampled_bytes)} of the text.\n"
    return Printout(data=dataclasses.asdict(estimate), text=render(table) + note)


def vocabulary_printout(
    tokenizer: PretrainingTokenizer, report: VocabularyReport, out: str, notices: Sequence[str]
) -> Printout:
    """Return what a vocabulary was trained on and what it leaves out."""
    left_out = [{"character": character, "count": n} for character, n in report.left_out]
    data = {
        "out": out,
        "vocab_size": tokenizer.vocab_size,
        "hash": tokenizer.hash,
        "num_documents": report.num_texts,
        "num_words": report.num_words,
        "num_distinct_words": report.num_distinct_words,
        "alphabet_size": report.alphabet_size,
        "left_out": left_out,
        "num_long_words": report.num_long_words,
        "unk_share": report.unk_share,
        "notices": list(notices),
    }
    lines = [
        f"{tokenizer.vocab_size:,} tokens from {count(report.num_texts, 'document')}: "
        f"{report.num_words:,} words, {report.num_distinct_words:,} distinct, "
        f"{report.alphabet_size:,} characters.",
        f"[UNK] {report.unk_share:.4%} of the tokens; {len(left_out):,} characters left out"
        + (": " + " ".join(repr(c) for c, _ in report.left_out[:10]) if left_out else "")
        + (" ..." if len(left_out) > 10 else "")
        + f"; {report.num_long_words:,} words are too long.",
        f"{out} loads in clozemill build --tokenizer and in transformers.AutoTokenizer.",
    ]
    return Printout(data=data, text="\n".join(lines) + "\n")


def _documents_table(manifest: Manifest) -> Table:
    table = new_table("documents", ["split", "fate", "documents", "tokens"], right=(2, 3))
    documents, tokens = manifest.ledger["documents"], manifest.ledger["document_tokens"]
    for split, fates in documents.items():
        for fate, number in sorted(fates.items(), key=lambda item: item[0] != "kept"):
            if number or fate == "kept":
                size = tokens[split].get(fate)
                table.add_row(split, fate, f"{number:,}", "-" if size is None else f"{size:,}")
    return table


_INSTANCE_COLUMNS = {
    "split": "",
    "instances": "",
    "random B": "pairs whose B is from another document, label 1",
    "expected": "their exact expectation: a chunk of one sentence has no other B",
    "tokens cut": "share of the documents' own tokens that no instance has room for",
    "mask rate": "selected of maskable tokens: {asked}",
    "bytes each": "on disk, with all variants",
    "shards": "",
}
"""Columns of the table of instances, and what is not plain about them; `asked` is by settings."""

_PAIR_COLUMNS = ("random B", "expected")


def _instance_columns(manifest: Manifest) -> dict[str, str]:
    """Return the columns that a dataset has something to say in: packed blocks have no B."""
    left_out = () if manifest.has_pairs else _PAIR_COLUMNS
    return {name: text for name, text in _INSTANCE_COLUMNS.items() if name not in left_out}


def _instances_table(manifest: Manifest) -> Table:
    columns = _instance_columns(manifest)
    table = new_table("instances", list(columns), right=range(1, len(columns)))
    for split, entry in manifest.splits.items():
        counts, masks = manifest.ledger["instances"][split], manifest.ledger["masks"][split]
        tokens, shards = manifest.ledger["pass_tokens"][split], manifest.shards_of(split)
        size = sum(shard.num_bytes for shard in shards)
        row = {
            "split": split,
            "instances": f"{entry.num_instances:,}",
            "random B": _share(counts["random"], counts["random"] + counts["next"]),
            "expected": _expected_share(manifest, split),
            "tokens cut": _share(tokens["own"] - tokens["in_instances"], tokens["own"]),
            "mask rate": _share(masks["selected"], masks["maskable"]),
            "bytes each": f"{size / entry.num_instances:,.0f}",
            "shards": f"{len(shards)}",
        }
        table.add_row(*(row[name] for name in columns))
    return table


def _legend(manifest: Manifest) -> Text:
    asked = _asked_share(manifest.configuration)
    lines = [
        f"{name}: {meaning.format(asked=asked)}"
        for name, meaning in _instance_columns(manifest).items()
        if meaning
    ]
    return Text(";\n".join(lines) + ".\n", style="dim")


def _asked_share(settings: Mapping[str, Any]) -> str:
    """Return of what `masked_lm_prob` is a share, which explains another mask rate."""
    share = f"{100 * settings['masked_lm_prob']:.3g} %"
    if settings["mask_count"] == "stochastic":
        return f"{share} of them, rounded at random"
    return f"{share} of the length, specials included, rounded"


def _expected_share(manifest: Manifest, split: str) -> str:
    entries = manifest.label_expectations.get(split, {}).values()
    random = sum(entry["random"] for entry in entries)
    return _share(random, random + sum(entry["next"] for entry in entries))


def _share(part: float, whole: float) -> str:
    return percent(part / whole if whole else None)


def _last_line(report: BuildReport, out: str) -> Text:
    manifest, seconds = report.manifest, sum(report.seconds.values())
    text_bytes = manifest.ledger["records"][""].get("text_bytes", 0)
    ledger = from_json(manifest.ledger)
    unknown_share = _share(total(ledger, "unknown_tokens"), total(ledger, "document_tokens"))
    return Text(
        f"{text_bytes / 1e6:,.1f} MB of text in {seconds:,.1f} s ({text_bytes / 1e6 / seconds:,.1f}"
        f" MB/s), [UNK] {unknown_share}, peak {report.peak_process_bytes / 1e6:,.0f} MB a "
        f"process.\n{out} is a dataset; look inside with: clozemill inspect {out}"
    )
