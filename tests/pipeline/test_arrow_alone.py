"""Arrow without pandas: what it saves, and what still works."""

import subprocess
import sys

SCRIPT = """
import sys
import pyarrow
from clozemill.pipeline.arrow_alone import keep_pandas_out

keep_pandas_out()
assert pyarrow.array([1, None]).null_count == 1
assert pyarrow.table({"a": [1]}).to_pydict() == {"a": [1]}
print("pandas" in sys.modules)
import pandas

print(pyarrow.table({"a": [1]}).to_pandas().equals(pandas.DataFrame({"a": [1]})))
"""


def test_arrays_are_made_without_pandas_and_pandas_can_still_be_imported():
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert found.stdout.split() == ["False", "True"], found.stderr
