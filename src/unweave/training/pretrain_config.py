"""Everything that ``unweave train`` can be told. Nothing heavy is imported here: help and errors come at once."""

import difflib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from unweave.errors import UnweaveError


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """A run on images of your own; a preset is one of these, and any field can be set by flag or from a YAML file."""

    method: Literal["simclr", "vicreg", "barlow"] = "simclr"
    """The base method."""
    styles: bool = True
    """Learn a spatial and an appearance space beside content; without, the base method itself."""
    backbone: str = "resnet18"
    """A network of torchvision's or timm's, by name."""
    small_images: bool = False
    """A ResNet's stem for images of 32 pixels: a 3×3 convolution without stride, no pooling."""
    dim: int = 128
    """Dimensions of each space."""
    hidden: int = 2048
    """Width of each projector."""
    depth: int = 2
    """Linear layers of each projector."""

    size: int = 64
    """Pixels a side of what the network sees."""
    decode_size: int | None = None
    """Pixels a side of what images are decoded to, and views cut from; by default 8/7 of size."""
    crop_scale: float = 0.08
    """The smallest share of an image's area that a crop may have."""
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.2, 0.1)
    """Strength of brightness, contrast, saturation and hue."""
    blur: tuple[float, float] = (0.5, 0.5)
    """Probability of a blur, of the first and of the second view."""
    solarize: tuple[float, float] = (0.0, 0.2)
    """Probability of solarizing, likewise."""

    temperature: float = 0.15
    """SimCLR's τ."""
    weight_rule: Literal["paper", "signed", "geometric", "fixed"] = "paper"
    """How the weights λ of the invariance terms move; without styles they do not."""
    weight_lr: float = 1e-3
    """The step size η of λ."""
    tolerance: float = 1e-3
    """How much invariance may be missing, ε."""
    weight_warmup_epochs: int = 10
    """Epochs before λ begins to move."""

    epochs: int = 100
    """Times every image is seen; 0 with --init trains the projectors alone."""
    batch_size: int = 256
    """Images a step, over all processes."""
    micro_batch: int | None = None
    """Images through the network at a time, in each process, where a batch does not fit into memory."""
    optimizer: Literal["adamw", "lars"] = "adamw"
    """LARS for batches of thousands."""
    lr: float = 1e-3
    """The highest learning rate; with LARS for 256 images, and in proportion for other batches."""
    warmup_epochs: float = 10.0
    """Epochs over which the learning rate rises; at most a tenth of the run."""
    weight_decay: float = 1e-4
    """Of weights; biases and norms have none."""
    clip: float | None = None
    """The largest norm of the gradient."""
    precision: Literal["auto", "32-true", "bf16-mixed"] = "auto"
    """bf16-mixed on GPUs, 32-true elsewhere, unless told."""
    compile: bool = False
    """Compile the network."""
    graph: bool = False
    """On one GPU, record the step as a CUDA graph: faster where a network is small, for more memory."""
    seed: int = 0
    """Of everything random."""

    init: str | None = None
    """Go on from a trained base: a run's folder, a checkpoint of torchvision's or timm's (.safetensors, or .pth without
    pickled code), or 'pretrained' for the library's own weights."""
    projector_epochs: int = 0
    """Epochs in which the projectors alone are trained, before --epochs of everything (the paper's Ours-FT)."""

    root: str | None = None
    """Where a torchvision data set lies, DATA being its name."""
    image_column: str | None = None
    """The images' column, where a Parquet file has several."""
    label_column: str | None = None
    """The labels' column in a Parquet file."""
    cache: Literal["auto", "gpu", "ram", "none"] = "auto"
    """Where decoded images are kept: auto takes the GPU or the memory if they fit."""
    workers: int | None = None
    """Processes that decode images; one for each core by default."""
    max_bad: float = 0.01
    """The share of images that may be unreadable."""

    probe: Literal["knn", "ridge", "none"] = "knn"
    """What measures each space by the labels, where there are labels, while it is trained."""
    probe_every: int = 10
    """Epochs between two measurements."""
    probe_data: str | None = None
    """Images with labels to measure on; by default a part of DATA."""
    tensorboard: bool = False
    """Write metrics for TensorBoard too."""
    log_every: int = 20
    """Steps between two lines of metrics."""
    checkpoint_minutes: float = 5.0
    """Minutes between two checkpoints; the last step and SIGTERM always write one."""

    accelerator: str = "auto"
    """cpu, cuda, …; auto takes what there is."""
    devices: int | None = None
    """Processes on each machine; under torchrun and Slurm, what they have started."""
    nodes: int | None = None
    """Machines; likewise."""
    strategy: str = "auto"
    """Fabric's name for how processes work together."""

    def __post_init__(self) -> None:
        at_least_one = ("dim", "hidden", "depth", "size", "batch_size", "probe_every", "log_every")
        for name in (*at_least_one, *(n for n in ("decode_size", "micro_batch") if getattr(self, n) is not None)):
            if getattr(self, name) < 1:
                raise UnweaveError(f"{flag(name)} must be at least 1, not {getattr(self, name)}")
        for name in ("epochs", "projector_epochs", "weight_warmup_epochs", "warmup_epochs", "checkpoint_minutes"):
            if getattr(self, name) < 0:
                raise UnweaveError(f"{flag(name)} cannot be negative: {getattr(self, name)}")
        if self.workers is not None and self.workers < 0:
            raise UnweaveError(f"--workers cannot be negative: {self.workers}")
        for name in ("max_bad", "crop_scale"):
            if not 0 <= getattr(self, name) <= 1:
                raise UnweaveError(f"{flag(name)} is a share between 0 and 1, not {getattr(self, name)}")
        if self.projector_epochs and self.init is None:
            raise UnweaveError("--projector-epochs trains projectors on a trained base: say which by --init")
        if not self.epochs and not self.projector_epochs:
            raise UnweaveError("--epochs is 0: only with --init and --projector-epochs is there anything to train")

    @property
    def working_size(self) -> int:
        """Pixels a side of decoded images."""
        return self.decode_size or self.size * 8 // 7


def flag(name: str) -> str:
    """A field's name, as it is written on the command line."""
    return "--" + name.replace("_", "-")


def from_mapping(values: dict[str, Any], base: PretrainConfig, where: str) -> PretrainConfig:
    """``base`` with these fields changed; ``where`` they come from is named in errors."""
    hints = get_type_hints(PretrainConfig)
    changes = {}
    for name, value in values.items():
        known = str(name).replace("-", "_")
        if known not in hints:
            close = difflib.get_close_matches(known, hints, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UnweaveError(f"{where}: there is no setting {name!r}{hint}")
        changes[known] = _coerce(value, hints[known], f"{where}: {known}")
    return replace(base, **changes)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file of settings."""
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnweaveError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UnweaveError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UnweaveError(f"{path} must hold 'name: value' lines, not {type(values).__name__}")
    return values


def to_mapping(config: PretrainConfig) -> dict[str, Any]:
    """Plain values by name, in order, as they are written to YAML."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(config).items()}


def _coerce(value: Any, hint: Any, where: str) -> Any:
    """The value as its field wants it; YAML reads 1e-3 as text and lists for tuples."""
    if get_origin(hint) is UnionType:
        kinds = get_args(hint)
        if value is None and NoneType in kinds:
            return None
        hint = next(kind for kind in kinds if kind is not NoneType)
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        raise UnweaveError(f"{where} is one of {', '.join(get_args(hint))}, not {value!r}")
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if isinstance(value, (list, tuple)) and len(value) == len(kinds):
            return tuple(_coerce(v, kind, where) for v, kind in zip(value, kinds, strict=True))
        raise UnweaveError(f"{where} is {len(kinds)} numbers, not {value!r}")
    if hint is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except ValueError:
            pass
    elif isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise UnweaveError(f"{where} is a {hint.__name__}, not {value!r}")


FIELDS = tuple(field.name for field in fields(PretrainConfig))
