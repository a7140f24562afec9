"""What the server of ``processes`` imports before it forks: everything that a run imports sooner or later."""

import lightning_fabric  # noqa: F401
import pyarrow.parquet  # noqa: F401
import timm.optim  # noqa: F401
import torch._dynamo
import torch.distributed.fsdp
import torch.distributed.tensor
import torch.nn.parallel  # noqa: F401
import torchvision.models  # noqa: F401
import tyro  # noqa: F401

import unweave as uw
from unweave.training import launch

launch.cpu_has_bfloat16 = lambda: False  # as in conftest.py

for name in uw.__all__:
    getattr(uw, name)
