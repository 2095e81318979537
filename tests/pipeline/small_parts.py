"""Parts of the first stage, for tests of what comes after it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.pipeline.small_corpora import write_json_lines

from clozemill.pipeline.inputs import list_inputs
from clozemill.pipeline.mapping import MapTask, run_map_task
from clozemill.pipeline.read import ReadOptions
from clozemill.pipeline.tokenizer import load_tokenizer


def write_parts(
    folder: Path,
    tokenizer: Path,
    groups: Sequence[Sequence[str]],
    *,
    is_validation: Sequence[bool] = (),
    sources: Sequence[Sequence[str]] = (),
) -> tuple[Path, tuple[str, ...]]:
    """Run one map task per group of texts; return the folder and the names of the parts."""
    map_dir = folder / "map"
    map_dir.mkdir(parents=True)
    parts: list[str] = []
    for number, texts in enumerate(groups):
        fields: dict[str, Any] = {"source": sources[number]} if sources else {}
        path = write_json_lines(folder / f"{number}.jsonl", texts, **fields)
        listing = list_inputs(
            [str(path)], input_format=None, layout="prose", spool_dir=folder / "spool"
        )
        task = MapTask(
            name=f"input-{number:06d}",
            splits=listing.splits,
            is_validation=bool(is_validation and is_validation[number]),
            options=ReadOptions(source_field="source" if sources else None),
            sentence_rule="sentencex:en",
            limit_documents=None,
            tokenizer_dir=str(tokenizer),
            tokenizer_hash=load_tokenizer(tokenizer).hash,
            map_dir=str(map_dir),
        )
        parts += run_map_task(task).parts
    return map_dir, tuple(parts)
