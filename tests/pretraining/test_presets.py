import pytest

from unweave.errors import UnweaveError
from unweave.pretraining import PRESETS, preset


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_can_be_built_and_names_itself_in_its_command(name):
    chosen = PRESETS[name]
    assert f"--preset {name}" in chosen.command
    assert all((chosen.about, chosen.hardware, chosen.time, chosen.score))
    views = chosen.config.views.build()
    assert views.spaces == chosen.config.views.spaces == chosen.config.objective.build(views.spaces, 10).spaces


def test_the_papers_preset_is_the_papers():
    config = PRESETS["imagenet"].config
    training, encoder, views = config.training, config.encoder, config.views
    assert (encoder.backbone, views.size, training.epochs, training.batch_size) == ("resnet50", 224, 100, 2048)
    assert (encoder.dim, encoder.hidden, encoder.depth, training.optim.optimizer) == (8192, 8192, 3, "lars")
    assert (views.blur, views.solarize, views.jitter) == ((1.0, 0.1), (0.0, 0.2), (0.4, 0.4, 0.2, 0.1))
    assert training.optim.peak_lr(2048) == 0.5 * 2048 / 256


def test_an_unknown_preset_is_refused():
    with pytest.raises(UnweaveError, match="there are small, cifar"):
        preset("big")
