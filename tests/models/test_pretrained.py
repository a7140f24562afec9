"""Weights of a trained base: of a run, or of another library."""

import pytest
import torch
from safetensors.torch import save_file

from small_runs import photo_config, pretrain, weights
from unweave.errors import UnweaveError
from unweave.models import load_weights, read_weights
from unweave.pretraining.run import _read_init


@pytest.fixture(scope="module")
def base(photo_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "run"
    pretrain(photo_folder, out, styles="none", epochs=1, probe="none")
    return out


def fresh(seed=5, **settings):
    config = photo_config(**settings)
    torch.manual_seed(seed)
    return config.encoder.build(config.views.spaces)


def initialise(encoder, init):
    return load_weights(encoder, _read_init(str(init)), str(init))


def backbone(state):
    return {k: v for k, v in state.items() if k.startswith("backbone.")}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_a_run_gives_the_backbone_and_the_projectors_of_its_spaces(base):
    encoder = fresh()
    assert "projectors of content" in initialise(encoder, base)
    assert same(backbone(encoder.state_dict()), backbone(weights(base)))
    assert torch.equal(encoder.projectors["content"][0].weight, weights(base)["projectors.content.0.weight"])
    wider = fresh(dim=16)
    assert "new projectors" in initialise(wider, base)


def test_first_the_projectors_alone_then_all_parameters(base, photo_folder, tmp_path):
    done = pretrain(photo_folder, tmp_path, init=str(base), projector_epochs=1, epochs=1, probe="none")
    middle = weights(tmp_path / "projectors")
    assert same(backbone(middle), backbone(weights(base)))
    assert not torch.equal(middle["projectors.content.0.weight"], weights(base)["projectors.content.0.weight"])
    assert not same(backbone(weights(tmp_path)), backbone(middle))
    assert done.steps == 5
    again = pretrain(photo_folder, tmp_path, init=str(base), projector_epochs=1, epochs=1, probe="none")
    assert again.resumed_from == 5


def test_the_projectors_alone_keep_the_backbones_batch_norm(photo_folder, tmp_path):
    settings = {"backbone": "test_resnet", "epochs": 1, "probe": "none"}
    pretrain(photo_folder, tmp_path / "base", styles="none", **settings)
    pretrain(
        photo_folder, tmp_path / "run", init=str(tmp_path / "base"), projector_epochs=1, **{**settings, "epochs": 0}
    )
    assert same(backbone(weights(tmp_path / "run")), backbone(weights(tmp_path / "base")))


@pytest.mark.parametrize("prefix", ["", "module.", "module.encoder.", "backbone."])
def test_checkpoints_of_others(tmp_path, prefix):
    theirs = {k.removeprefix("backbone."): v for k, v in backbone(fresh(seed=9).state_dict()).items()}
    state = {prefix + k: v.contiguous() for k, v in theirs.items()} | {prefix + "fc.weight": torch.zeros(2, 3)}
    save_file(state, tmp_path / "w.safetensors")
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "w.pth")
    for name in ("w.safetensors", "w.pth"):
        encoder = fresh()
        load_weights(encoder, read_weights(tmp_path / name))
        assert all(torch.equal(v, theirs[k]) for k, v in encoder.backbone.state_dict().items())


def test_a_torchvision_checkpoint(tmp_path):
    from torchvision.models import resnet18

    torch.save(resnet18().state_dict(), tmp_path / "resnet18.pth")
    assert "backbone from" in initialise(fresh(backbone="resnet18"), tmp_path / "resnet18.pth")


class Evil:
    def __reduce__(self):
        return (print, ("code was run",))


def test_pickled_code_is_not_run(tmp_path, capsys):
    torch.save({"state_dict": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(UnweaveError, match="without running code") as error:
        read_weights(tmp_path / "evil.pth")
    assert "\n" not in str(error.value)
    assert "code was run" not in capsys.readouterr().out


def test_weights_of_another_network_are_refused(tmp_path, base):
    with pytest.raises(UnweaveError, match="another network than `backbone`"):
        initialise(fresh(backbone="test_resnet"), base)
    (tmp_path / "x.pth").write_bytes(b"no weights")
    for init in (tmp_path / "x.pth", tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UnweaveError) as error:
            initialise(fresh(), init)
        assert "\n" not in str(error.value)
