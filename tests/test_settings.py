"""Settings from keyword arguments and YAML, their identity and their documentation."""

from dataclasses import dataclass, field

import pytest

from unweave.errors import UnweaveError
from unweave.pretraining import PretrainConfig
from unweave.settings import (
    adjustable,
    from_nested,
    identity,
    read_yaml,
    require,
    settings_of,
    to_nested,
    to_yaml,
    with_settings,
)


@dataclass(frozen=True, kw_only=True)
class Inner:
    lr: float = 0.1
    """The learning
    rate."""
    workers: int | None = adjustable(None)
    sizes: tuple[int, int] = (1, 2)


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str = "x"
    inner: Inner = field(default_factory=Inner)

    def __post_init__(self):
        require(self.inner, "> 0", "lr")


def test_flat_names_reach_nested_settings():
    changed = with_settings(Outer(), {"lr": "1e-3", "sizes": [3, 4], "name": "y"})
    assert changed == Outer(name="y", inner=Inner(lr=1e-3, sizes=(3, 4)))
    assert with_settings(Outer(inner=Inner(workers=3)), {"workers": None}).inner.workers is None


def test_yaml_mirrors_the_nesting_and_reads_back(tmp_path):
    config = Outer(inner=Inner(lr=1e-5, sizes=(7, 8)))
    (tmp_path / "c.yaml").write_text(to_yaml(to_nested(config)))
    assert from_nested(Outer(), read_yaml(tmp_path / "c.yaml"), "c.yaml") == config
    assert from_nested(config, {"inner": {"workers": 2}}, "c.yaml").inner == Inner(lr=1e-5, sizes=(7, 8), workers=2)


def test_the_identity_has_every_setting_but_the_adjustable_ones():
    assert identity(Outer(inner=Inner(workers=5))) == {"name": "x", "inner": {"lr": 0.1, "sizes": [1, 2]}}


def test_the_docstring_below_a_field_is_its_help():
    assert settings_of(Outer)["lr"].help == "The learning rate."
    assert settings_of(Outer)["lr"].path == ("inner", "lr")


def test_every_setting_of_unweave_train_is_documented_and_its_name_is_unique():
    settings = settings_of(PretrainConfig)
    assert len(settings) > 40
    assert not [name for name, setting in settings.items() if not setting.help]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda: with_settings(Outer(), {"lr": "fast"}), "`lr` must be a number, not 'fast'"),
        (lambda: with_settings(Outer(), {"workers": 1.5}), "`workers` must be a whole number"),
        (lambda: with_settings(Outer(), {"sizes": (1,)}), "`sizes` must be 2 numbers"),
        (lambda: with_settings(Outer(), {"worker": 1}), "no setting `worker`; did you mean inner.workers"),
        (lambda: with_settings(Outer(), {"lr": -1}), "`lr` must be positive, not -1"),
        (lambda: with_settings(Outer(), {"lr": float("nan")}), "`lr` must be positive, not nan"),
        (lambda: from_nested(Outer(), {"lr": 1}, "c.yaml"), "c.yaml: there is no setting 'lr'; it belongs to inner"),
        (lambda: from_nested(Outer(), {"inner": {"lrs": 1}}, "c.yaml"), "'inner.lrs'; did you mean lr"),
        (lambda: from_nested(Outer(), {"inner": 3}, "c.yaml"), "inner is a group of settings, not 3"),
        (lambda: from_nested(Outer(), {"inner": {"lr": True}}, "c.yaml"), "inner.lr must be a number, not True"),
    ],
)
def test_mistakes_name_the_setting_the_value_and_what_is_accepted(change, words):
    with pytest.raises(UnweaveError) as error:
        change()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"), [("a: [", "not valid YAML"), ("- 1", "name: value"), (None, "cannot be read")]
)
def test_files_that_are_not_settings(tmp_path, text, words):
    if text is not None:
        (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UnweaveError, match=words):
        read_yaml(tmp_path / "c.yaml")
