import pytest
import torch

from unweave.errors import UnweaveError
from unweave.models.config import EncoderConfig
from unweave.objectives import SimCLR
from unweave.objectives.config import ObjectiveConfig

SPACES = ("content", "color", "spatial")


@pytest.mark.parametrize("rule", ["fixed", "dual-ascent", "additive", "signed-additive", "geometric"])
def test_content_and_styles_have_the_first_weights_that_are_set_under_every_rule(rule):
    config = ObjectiveConfig(method="vicreg", lambda_rule=rule, style_lambda=3.0)
    assert config.build(SPACES, steps=100).lambdas.tolist() == [25.0, 3.0, 3.0]  # content: VICReg's standard weight
    assert ObjectiveConfig(content_lambda=2.0).build(("content",), steps=100).lambdas.tolist() == [2.0]


def test_independence_starts_when_the_weights_begin_to_change_and_needs_styles():
    config = ObjectiveConfig(independence=5.0, lambda_warmup=0.2)
    objective = config.build(SPACES, steps=100)
    assert objective.independence_weights.tolist() == [0.0, 5.0, 5.0]
    assert objective.independence.start == objective.lambda_rule.warmup == 20
    assert config.build(("content",), steps=100).independence is None
    assert ObjectiveConfig(independence=0.0).build(SPACES, steps=100).independence is None


def test_by_default_independence_applies_to_the_spaces_whose_transforms_do_not_move_pixels():
    config = ObjectiveConfig(independence=5.0)
    assert config.build(SPACES, steps=100, geometric=["spatial"]).independence_weights.tolist() == [0.0, 5.0, 0.0]
    assert config.build(SPACES, steps=100, geometric=SPACES[1:]).independence is None
    everywhere = ObjectiveConfig(independence=5.0, independence_spaces=("all",))
    assert everywhere.build(SPACES, steps=100, geometric=["spatial"]).independence_weights.tolist() == [0.0, 5.0, 5.0]


def test_independence_may_apply_to_some_of_the_style_spaces():
    config = ObjectiveConfig(independence=5.0, independence_spaces=("spatial",))
    assert config.build(SPACES, steps=100).independence_weights.tolist() == [0.0, 0.0, 5.0]
    with pytest.raises(UnweaveError, match=r"independence_spaces.*content.*color, spatial"):
        ObjectiveConfig(independence=5.0, independence_spaces=("content",)).build(SPACES, steps=100)


def test_simclrs_options_reach_it():
    base = ObjectiveConfig(temperature=0.3, joint_temperature=0.1, joint_own_view=True, joint_content=2.0)._base()
    assert (base.temperature, base.joint_temperature, base.joint_own_view) == (0.3, 0.1, True)
    assert base.joint_content == 2.0


def test_the_guard_has_the_least_variance_that_is_set():
    assert ObjectiveConfig(min_variance=0.25).build(SPACES, steps=9).collapse_guard.min_variance == 0.25


def test_by_default_each_space_counts_in_the_joint_entropy_as_much_as_in_one_of_its_own():
    def joint_temperature(entropy):
        return ObjectiveConfig(temperature=0.3, entropy=entropy).build(SPACES, steps=9).base.joint_temperature

    assert joint_temperature("content+pairwise") == pytest.approx(0.15)
    assert joint_temperature("content+joint") == pytest.approx(0.1)
    z = torch.nn.functional.normalize(torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    alone = SimCLR(0.3).entropy(z, z)
    constant = torch.ones(20, 4)  # a space that separates nothing
    joint = SimCLR(0.3, joint_temperature=0.15).joint_entropy([z, constant], [z, constant])
    torch.testing.assert_close(joint - 0.5 / 0.15, alone)


def test_style_spaces_may_have_another_size():
    small = {"hidden": 4, "backbone": "test_resnet"}
    assert EncoderConfig(dim=6, style_dim=2, **small).build(SPACES).dims == {"content": 6, "color": 2, "spatial": 2}
    assert EncoderConfig(dim=6, **small).build(SPACES).dims == {"content": 6, "color": 6, "spatial": 6}


@pytest.mark.parametrize(
    ("method", "setting", "standard"),
    [("vicreg", "covariance_weight", 1.0), ("barlow-twins", "off_diagonal_weight", 0.0051)],
)
def test_the_weight_of_the_correlations_is_the_methods_own_unless_it_is_set(method, setting, standard):
    assert getattr(ObjectiveConfig(method=method).build(("content", "color"), 100).base, setting) == standard
    changed = ObjectiveConfig(method=method, **{setting: 0.5}).build(("content", "color"), 100)
    assert getattr(changed.base, setting) == 0.5
    with pytest.raises(UnweaveError, match=f"`{setting}`"):
        ObjectiveConfig(method=method, **{setting: -1.0})
