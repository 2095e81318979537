"""One of several real processes: reads its share and meets the others at every turn.

python -m torch.distributed.run --nproc_per_node 2 -m tests.train.dump_rows DATA OUT 0 9 2
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed
from tests.train.small_readings import rows_of

from clozemill.pipeline.dataset import open_dataset
from clozemill.train.instances import PretrainingInstances
from clozemill.train.loader import LoaderSettings, micro_batches
from clozemill.train.order import BatchOrder

GLOBAL_BATCH_SIZE = 4


def main(data: str, out: str, first: str, end: str, num_workers: str) -> None:
    """Write the rows of each turn of some steps as text, one JSON file per rank."""
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world_size > 1:
        torch.distributed.init_process_group("gloo")
    instances = PretrainingInstances(open_dataset(data), masking="dynamic")
    order = BatchOrder(instances, global_batch_size=GLOBAL_BATCH_SIZE, length_window=2)
    settings = LoaderSettings(
        micro_batch_size=1, rank=rank, world_size=world_size, num_workers=int(num_workers)
    )
    turns = []
    for batch in micro_batches(instances, order, settings, steps=range(int(first), int(end))):
        turns.append([repr(row) for row in rows_of(batch)])
        if world_size > 1:
            torch.distributed.all_reduce(torch.ones(1))
    Path(out, f"{first}-{rank}.json").write_text(json.dumps(turns))
    if world_size > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
