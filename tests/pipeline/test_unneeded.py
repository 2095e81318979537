"""Processes without what a build never uses: what that saves, and what still works."""

import subprocess
import sys

SCRIPT = """
import sys
import pyarrow
from clozemill.pipeline.unneeded import keep_unneeded_out

keep_unneeded_out()
import clozemill.pipeline.preload

assert pyarrow.array([1, None]).null_count == 1
assert pyarrow.table({"a": [1]}).to_pydict() == {"a": [1]}
print(*({"cffi", "pandas", "scipy", "scipy.linalg", "yaml"} & set(sys.modules)))
import pandas
import scipy.linalg

print(pyarrow.table({"a": [1]}).to_pandas().equals(pandas.DataFrame({"a": [1]})))
print(scipy.linalg.det([[2.0]]))
"""


def test_arrays_and_kernels_need_none_and_all_can_still_be_imported():
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert found.stdout.split() == ["True", "2.0"], found.stderr
