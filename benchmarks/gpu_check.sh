#!/usr/bin/env bash
# What only a machine with a GPU can tell: whether training there is right, then how fast it is.
# Two GPUs or more are tested as ranks as well. PYTHON names the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" -c 'import torch; assert torch.cuda.is_available(), "torch sees no GPU here"'
"$python" -m pytest -m gpu
"$python" -m benchmarks.train_step --model base --rows 256
