"""Runs of ``unweave train`` that take a second: a network of timm's for tests, without batch norm."""

from unweave.training import load_checkpoint
from unweave.training.pretrain import pretrain
from unweave.training.pretrain_config import PretrainConfig

TINY = {
    "backbone": "test_convnext", "size": 32, "decode_size": 40, "dim": 8, "hidden": 16, "depth": 1, "batch_size": 12,
    "epochs": 2, "workers": 0, "log_every": 1, "accelerator": "cpu",
}  # fmt: skip


def run(folder, out, **settings):
    return pretrain(str(folder), out, PretrainConfig(**{**TINY, **settings}), progress=False)


def weights(out):
    return load_checkpoint(out / "checkpoint.safetensors")["encoder"]


def flags(**settings):
    """The same settings, for the command line."""
    return [
        word for name, value in {**TINY, **settings}.items() for word in (f"--{name.replace('_', '-')}", str(value))
    ]
