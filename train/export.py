"""A run becomes a model that `transformers` loads: weights, tokenizer, model card.

OUT/  config.json  model.safetensors  tokenizer.json  tokenizer_config.json  vocab.txt
      README.md    the model card
      export.json  the checksum of each of them, by which --overwrite knows what it may delete

The folder is written aside, read back, compared and only then renamed.
"""

import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clozemill import __version__
from clozemill.model.bert import BertForPreTraining
from clozemill.model.convert import save_pretrained
from clozemill.pipeline.errors import ConfigError, RunError
from clozemill.pipeline.files import (
    aside_path,
    atomic_folder,
    file_checksum,
    open_regular,
    write_json,
)
from clozemill.pipeline.out_folder import check_out
from clozemill.pipeline.tokenizer import PretrainingTokenizer
from clozemill.pipeline.tokenizer_saving import save_tokenizer
from clozemill.train.checkpoints import TrainingState, defect, list_checkpoints
from clozemill.train.encoders import TrainedEncoder, find_encoder, find_tokenizer
from clozemill.train.export_checks import check_like_transformers, check_reloads
from clozemill.train.facts import CHECKPOINTS_NAME, RUN_NAME
from clozemill.train.metrics import METRICS_NAME, EvaluationRow, StartRow, read_metrics
from clozemill.train.model_card import CardFacts, model_card

RECEIPT_NAME = "export.json"
CARD_NAME = "README.md"
LINEAGE_KEY = "clozemill"
"""Entry of config.json that says what the model was trained on; `transformers` keeps it."""

_FORMAT_VERSION = 1
_MOST_RECEIPT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What an export wrote and how it was checked."""

    folder: Path
    """The export."""

    checkpoint: Path
    """What it was made from."""

    step: int
    """Optimizer updates of that checkpoint."""

    architecture: str
    """The class of `transformers` that it is."""

    files: tuple[str, ...]
    """Names of what was written."""

    transformers_version: str | None
    """Of the `transformers` that loaded it with equal logits and ids; None if not installed."""

    notices: tuple[str, ...]
    """What a person should know, a sentence each."""


def export_run(
    path: Path, out: Path, *, tokenizer_dir: Path | None = None, overwrite: bool = False
) -> ExportReport:
    """Write a run's encoder, tokenizer and model card into a folder of Hugging Face's form.

    Args:
        path: A run, whose newest complete checkpoint counts, or a checkpoint.
        out: The folder to write.
        tokenizer_dir: The tokenizer's folder, if the run's dataset is no longer where it was.
        overwrite: Replace an earlier export, if its files are as they were written. One of the
            same bytes stays without.

    Raises:
        ConfigError: The folder holds something else, or another export.
        RunError: There is no checkpoint to export, or the export does not read back as it should.
        TokenizerError: The tokenizer is not the one of the training.
    """
    before = _check_free(out)
    encoder = find_encoder(path)
    if encoder.state is None:
        raise RunError(f"{path} is no run but a model already; copy the folder.")
    tokenizer = find_tokenizer(encoder, tokenizer_dir)
    facts = _card_facts(encoder, encoder.state, _run_of(path))
    with atomic_folder(out) as aside:
        write_export(aside, encoder.model.eval(), tokenizer, facts)
        check_reloads(aside, encoder.model, tokenizer)
        version = check_like_transformers(aside, encoder.model, tokenizer)
        names = tuple(sorted(file.name for file in aside.iterdir()))
        if before is not None:
            if not overwrite and _read_receipt(aside) != before:
                raise ConfigError(f"{out} holds another export; use --overwrite to replace it.")
            _delete_export(out)
    return ExportReport(
        folder=out,
        checkpoint=encoder.folder,
        step=encoder.state.step,
        architecture=facts.architecture,
        files=names,
        transformers_version=version,
        notices=tuple(_notices(path, encoder.state, facts, version)),
    )


def write_export(
    folder: Path, model: BertForPreTraining, tokenizer: PretrainingTokenizer, facts: CardFacts
) -> None:
    """Write all files of an export into an empty folder, the receipt last."""
    save_pretrained(model, folder, extra_config={LINEAGE_KEY: _lineage(facts.state)})
    save_tokenizer(tokenizer, folder, model_max_length=model.config.max_position_embeddings)
    (folder / CARD_NAME).write_text(model_card(facts), encoding="utf-8", newline="\n")
    checksums = {file.name: file_checksum(file) for file in folder.iterdir()}
    receipt = {
        "format_version": _FORMAT_VERSION,
        "package_version": __version__,
        "files": checksums,
    }
    write_json(folder / RECEIPT_NAME, receipt)


def _lineage(state: TrainingState) -> dict[str, Any]:
    """Return what config.json says of the training: ids, and nothing of the machine."""
    dataset = state.facts.dataset
    return {
        "package_version": __version__,
        "step": state.step,
        "num_tokens": state.num_tokens,
        "num_instances": state.num_instances,
        "dataset_digests": dataset.dataset_digests,
        "instances_digests": dataset.instances_digests,
        "tokenizer_hash": dataset.tokenizer_hash,
    }


def _run_of(path: Path) -> Path | None:
    """Return the run folder that a path is or lies in, or None for a checkpoint by itself."""
    for folder in (path, path.absolute().parent.parent):
        if (folder / RUN_NAME).exists():
            return folder
    return None


def _card_facts(encoder: TrainedEncoder, state: TrainingState, run: Path | None) -> CardFacts:
    """Return what the card says; of the log only rows up to the checkpoint's step count."""
    has_log = run is not None and (run / METRICS_NAME).exists()
    rows = read_metrics(run / METRICS_NAME) if run is not None and has_log else []
    evaluations = [r for r in rows if isinstance(r, EvaluationRow) and r.step <= state.step]
    starts = [row for row in rows if isinstance(row, StartRow)]
    return CardFacts(
        name=run.resolve().name if run is not None else "BERT",
        config=encoder.model.config,
        state=state,
        evaluation=evaluations[-1] if evaluations else None,
        lines=starts[0] if starts else None,
    )


def _notices(path: Path, state: TrainingState, facts: CardFacts, version: str | None) -> list[str]:
    """Return what a person should know of an export, a sentence each."""
    notices = []
    if (path / RUN_NAME).exists():
        for step, newer in list_checkpoints(path / CHECKPOINTS_NAME):
            if step > state.step:
                notices.append(f"skipped {newer}: {defect(newer) or 'it is newer than this.'}")
    if facts.evaluation is None:
        notices.append("no evaluation is logged up to this step, so the card has no results.")
    if not facts.config.next_sentence:
        notices.append(
            "the run had no next-sentence task, so no pooler was trained: a classifier on top of "
            "the export starts with a random one."
        )
    if version is None:
        notices.append(
            "transformers is not installed, so only clozemill has read the export back; pip "
            "install transformers to have that checked too."
        )
    return notices


def _check_free(out: Path) -> dict[str, Any] | None:
    """Make sure that nothing but an unchanged export would have to go.

    Returns:
        The checksums of that export; None if the folder is free.

    Raises:
        ConfigError: The folder holds something that is not to be deleted.
    """
    check_out(out)
    if not os.path.lexists(out):
        return None
    if not out.is_dir():
        raise ConfigError(f"{out} is a file; choose another --out.")
    names = {path.name for path in out.iterdir()}
    if not names:
        return None
    files = _read_receipt(out)
    if files is None:
        raise ConfigError(
            f"{out} holds {min(names)!r} and is no export of ours; choose an empty or new folder "
            "for --out."
        )
    for name in sorted(names - {RECEIPT_NAME}):
        path = out / name
        is_ours = name in files and path.is_file() and not path.is_symlink()
        if not is_ours or file_checksum(path) != files[name]:
            raise ConfigError(
                f"{path} is not what an export wrote, and would be lost; move it away, or choose "
                "another --out."
            )
    return files


def _read_receipt(folder: Path) -> dict[str, Any] | None:
    """Return the checksum of each file of an export, or None if a folder is none."""
    with contextlib.suppress(OSError, ValueError, RecursionError, TypeError, KeyError):
        with open_regular(folder / RECEIPT_NAME) as stream:
            receipt = json.loads(stream.read(_MOST_RECEIPT_BYTES))
        if receipt["format_version"] == _FORMAT_VERSION:
            return dict(receipt["files"])
    return None


def _delete_export(out: Path) -> None:
    """Delete an export that `_check_free` has looked at; never half of it."""
    aside = aside_path(out)
    out.rename(aside)
    shutil.rmtree(aside)
