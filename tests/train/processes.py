"""Real processes: a module run by one Python, or by several that train together."""

import os
import subprocess
import sys
from typing import Any

from tests.train.small_runs import ROOT, environment


def module_command(module: str, *arguments: Any, ranks: int = 1) -> list[str]:
    """Return the command that runs a module, under torchrun if there are several ranks."""
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node", str(ranks)]
    words = [*(launcher if ranks > 1 else ()), "-m", module, *map(str, arguments)]
    return [sys.executable, *words]


def start_module(module: str, *arguments: Any, ranks: int = 1) -> "subprocess.Popen[str]":
    """Start a module; the caller waits for it."""
    return subprocess.Popen(
        module_command(module, *arguments, ranks=ranks),
        cwd=ROOT,
        env={**environment(), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_module(
    module: str, *arguments: Any, ranks: int = 1, timeout: float = 300
) -> "subprocess.CompletedProcess[str]":
    """Run a module to its end."""
    process = start_module(module, *arguments, ranks=ranks)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
