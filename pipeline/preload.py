"""Imported for its cost: by a process that has nothing to do yet, so that it finds it paid.

The first use of Arrow's Python side imports pandas unless that is kept out, the first kernel sets
up Numba: together about as much as reading 10 MB of text.
"""

import numpy as np
import pyarrow as pa

import clozemill.pipeline.mapping
import clozemill.pipeline.reduce  # noqa: F401
from clozemill.pipeline.splits import split_hashes

pa.array([""])
split_hashes(np.empty((0, 2), np.uint64), np.uint64(0))
