from tests.train.small_readings import BuiltDataset

from clozemill.train.assembly import assemble
from clozemill.train.config import PretrainConfig
from clozemill.train.launch import start_accelerator


def test_the_order_sorts_lengths_within_the_window_asked_for(built: BuiltDataset) -> None:
    config = PretrainConfig(
        data=str(built().folder),
        model="tiny",
        precision="fp32",
        threads=1,
        steps=1,
        global_batch_size=16,
        length_window=2,
    )
    assert assemble(config, start_accelerator(config)).order.block_rows == 32
