"""What a process of a training is: its rank, threads, precision, and what only one of them does."""

import atexit
import contextlib
import ctypes
import gc
import importlib
import importlib.util
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast_object_list

from clozemill.pipeline.engine import usable_cores
from clozemill.pipeline.errors import ClozemillError, ConfigError, RunError
from clozemill.train.config import PretrainConfig

Result = TypeVar("Result")

_ACCELERATE_NAMES = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}


def start_accelerator(config: PretrainConfig) -> Accelerator:
    """Return this process's accelerator, after setting its number of threads.

    The precision of the settings wins over that of accelerate's own configuration.

    Raises:
        ConfigError: The device cannot do the precision, or the tracker is not installed.
    """
    # accelerate launch and torchrun set OMP_NUM_THREADS to 1, for every process alike.
    torch.set_num_threads(config.threads or _share_of_cores())
    precision = choose_precision(config.precision)
    keep_large_blocks()
    keep_few_products()
    if config.log_with is not None and importlib.util.find_spec(config.log_with) is None:
        raise ConfigError(
            f"log_with is {config.log_with}, which is not installed; pip install {config.log_with}."
        )
    end_group_at_exit()
    # Or the first precision of a process would be that of all its later trainings.
    AcceleratorState._reset_state()
    return Accelerator(
        mixed_precision=_ACCELERATE_NAMES[precision],
        # Unless it is told so, accelerate takes several processes without a GPU for one each.
        cpu=not torch.accelerator.is_available(),
        log_with=config.log_with,
        project_dir=config.out,
        step_scheduler_with_optimizer=False,
    )


def end_group_at_exit() -> None:
    """Let the group of processes that is to be made end before Python does, on every way out.

    A thread of gloo's that lets go of a tensor while Python ends aborts the process ("terminate
    called without an active exception"); on a busy machine that is not rare.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return
    # It keeps the group there is when it is imported, in default arguments: imported by
    # data-parallel training, so after the group was made, it would keep that to the end.
    importlib.import_module("torch.distributed.nn.functional")
    atexit.unregister(_end_group)
    atexit.register(_end_group)


def _end_group() -> None:
    """Leave the group of processes; its threads end with the last reference to it.

    That is ours only after data-parallel wrappers are gone, with the frames of whatever error
    ended the training. A rank that has died is not waited for.
    """
    gc.collect()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def keep_large_blocks() -> None:
    """Let glibc keep the memory of large tensors, as their sizes return in every step.

    By default it gives each back to the system, which then has to fill new pages with zeros: a
    sixth of a step of a small encoder. Other C libraries have no such call, and stay as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# malloc.h of glibc.


def keep_few_products() -> None:
    """Let oneDNN keep the code of few products of matrices, which it compiles for every shape.

    Micro-batches have ever other numbers of tokens. By default it keeps 1,024, which in bf16 on a
    CPU grew a process by 0.9 GB in 330 steps of a tiny encoder; 64 took as long, and 0.5 GB.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")


def _share_of_cores() -> int:
    return max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def choose_precision(asked: str) -> str:
    """Return the precision to train in; `auto` is bf16 where the hardware multiplies in it.

    Raises:
        ConfigError: fp16 without a GPU.
    """
    has_gpu = torch.cuda.is_available()
    if asked == "fp16" and not has_gpu:
        raise ConfigError("precision is fp16, which needs a GPU; use bf16 or fp32.")
    if asked != "auto":
        return asked
    if has_gpu:
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return "bf16" if capabilities.get("amx_bf16") or capabilities.get("avx512_bf16") else "fp32"


def precision_of(accelerator: Accelerator) -> str:
    """Return the precision that an accelerator was made for, as our settings name it."""
    return next(
        n for n, theirs in _ACCELERATE_NAMES.items() if theirs == accelerator.mixed_precision
    )


def on_main(accelerator: Accelerator, work: Callable[[], Result]) -> Result:
    """Do something in the first process alone, and return what it found in all of them.

    Others wait. What goes wrong there is raised everywhere, so no process waits for ever.
    """
    found: list[Any] = [None, None]
    if accelerator.is_main_process:
        try:
            found = [work(), None]
        except ClozemillError as error:
            found = [None, error]
    if accelerator.num_processes > 1:
        broadcast_object_list(found)
    if found[1] is not None:
        raise found[1]
    result: Result = found[0]
    return result


@contextlib.contextmanager
def reporting_lost_ranks() -> Iterator[None]:
    """Turn a connection to another rank that breaks into an error that says what to do.

    Raises:
        RunError: Another rank is gone.
    """
    try:
        yield
    except RuntimeError as error:
        # Gloo has no error of its own; NCCL's are of this kind.
        if not isinstance(error, torch.distributed.DistError) and "gloo" not in str(error):
            raise
        raise RunError(
            "the connection to another rank broke: it has died or was killed. Look at what it "
            "said last; the same command goes on from the newest checkpoint."
        ) from error


class StopRequest:
    """Whether a signal asked the training to stop."""

    def __init__(self) -> None:
        """Not yet."""
        self.is_made = False

    def make(self, number: int, frame: FrameType | None) -> None:
        """Ask; whoever asks for a second time does not want to wait for the step to end."""
        if self.is_made:
            raise KeyboardInterrupt
        self.is_made = True


@contextlib.contextmanager
def stopping_at_a_step() -> Iterator[StopRequest]:
    """Let a signal ask for a stop after the step, in place of breaking it off.

    SIGTERM, SIGINT, and SIGHUP of a closing terminal; what is ignored (`nohup`) stays so. Outside
    the main thread signals are nobody's business, and nothing changes.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    heard = [number for number in _STOPPING if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, request.make) for number in heard}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
