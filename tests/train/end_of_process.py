"""A training that also writes down which threads its process has when Python itself ends.

python -m torch.distributed.run --nproc_per_node 2 -m tests.train.end_of_process \
    OUT clozemill-pretrain-arguments...
"""

import atexit
import os
import sys
from pathlib import Path


def write_threads(out: Path) -> None:
    """Write the names of all threads, also those that Python knows nothing of, one a line."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    out.with_name(f"{out.name}-{os.environ['RANK']}.txt").write_text("".join(names))


if __name__ == "__main__":
    # Before any other import registers what is to be done at the end: the first comes last.
    atexit.register(write_threads, Path(sys.argv[1]))
    from clozemill.cli import main

    sys.argv[1:2] = ["pretrain"]
    main()
