"""Which models are trained and with which settings: read from a YAML file of this package for each scale.

common:                    settings of `unweave train` that all models share
models: {name: settings}   and those of each model; `init` names the model that it starts from
trials: {name: [settings]} the settings that were tried for a model, each in place of the model's own
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from unweave import PretrainConfig, UnweaveError
from unweave.settings import read_yaml, with_settings

UNTRAINED, SUPERVISED = "random weights", "supervised"
"""Models that are not trained by ``pretrain``."""


@dataclass(frozen=True)
class Scale:
    """The settings of every model at one scale."""

    name: str
    common: Mapping[str, Any]
    models: Mapping[str, Mapping[str, Any]]
    tuning: Mapping[str, Any]
    trials: Mapping[str, Mapping[str, Any]]

    def tried(self, model: str) -> list[Mapping[str, Any]]:
        """The trials of a model, as changes of their common start."""
        return list(self.trials.get(model, {}).get("tried", ()))

    def trial(self, model: str, number: int, changes: Mapping[str, Any]) -> PretrainConfig:
        """The settings of a trial, with some of them changed."""
        start = self.trials[model].get("start", {})
        settings = {**self.common, **self.tuning, **start, **self.tried(model)[number], **changes}
        return with_settings(PretrainConfig(), settings)

    def config(self, model: str, changes: Mapping[str, Any] | None = None) -> PretrainConfig:
        """The settings of a model, with some of them changed; ``init`` is the name of a model."""
        return with_settings(PretrainConfig(), {**self.common, **self.models[model], **(changes or {})})

    def start(self, model: str) -> str | None:
        """The model that this one starts from."""
        return self.models[model].get("init")

    def views_config(self) -> PretrainConfig:
        """The settings with which the sensitivity of every model is measured."""
        return with_settings(PretrainConfig(), dict(self.common))


@cache
def read_scale(name: str) -> Scale:
    """The scale of this name: mini or paper."""
    path = Path(__file__).parent / f"{name}.yaml"
    if not path.exists():
        raise UnweaveError(f"`scale` is mini or paper, not {name!r}")
    values = read_yaml(path)
    return Scale(name, values["common"], values["models"], values.get("tuning", {}), values.get("trials", {}))


def chosen_models(scale: Scale, only: str) -> list[str]:
    """The models whose name contains one of the texts in ``only``, which commas separate; a whole name means itself.

    Examples:
        >>> chosen_models(read_scale("mini"), "SimCLR, vicreg +, supervised")
        ['SimCLR', 'VICReg + Ours-Scratch', 'supervised']
    """
    names = {name.lower(): name for name in scale.models}
    rest, found = only.lower(), set[str]()
    for name in (name for name in names if "," in name and name in rest):
        rest = rest.replace(name, "")
        found.add(name)
    for text in filter(None, map(str.strip, rest.split(","))):
        matching = {text} & set(names) or {name for name in names if text in name}
        if not matching:
            raise UnweaveError(f"`only`: {text!r} matches no model; there are {', '.join(scale.models)}")
        found |= matching
    return [names[name] for name in names if name in found or not found]
