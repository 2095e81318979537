"""A real training that also writes down what it reads, one file per rank.

python -m torch.distributed.run --nproc_per_node 2 -m tests.analysis.dump_exposures \
    DUMP clozemill-pretrain-arguments...
"""

import json
import os
import sys
from pathlib import Path

from clozemill.cli import main
from clozemill.train.instances import MaskedInstances, PretrainingInstances


def write_down(dump: Path) -> None:
    """Let every micro-batch of the training split leave a line: indices, and what is masked."""
    read = PretrainingInstances.__getitems__
    stream = dump.with_name(f"{dump.name}-{os.environ['RANK']}.jsonl").open("w")

    def read_and_tell(self: PretrainingInstances, indices: list[int]) -> MaskedInstances:
        found = read(self, indices)
        if self.reader.split == "train":
            rows = [found.slice(row, row + 1).masks for row in range(len(found))]
            shown = [[row.positions.tolist(), row.token_ids.tolist()] for row in rows]
            stream.write(json.dumps([found.indices.tolist(), shown]) + "\n")
            stream.flush()
        return found

    PretrainingInstances.__getitems__ = read_and_tell  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    write_down(Path(sys.argv[1]))
    sys.argv[1:2] = ["pretrain"]
    main()
