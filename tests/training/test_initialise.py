"""Fine-tuning from a trained base, ours or another's."""

import pytest
import torch
from safetensors.torch import save_file
from tiny_pretrain import TINY, run, weights

from unweave.errors import UnweaveError
from unweave.training.initialise import initialise
from unweave.training.pretrain_config import PretrainConfig
from unweave.training.recipe import make_encoder


@pytest.fixture(scope="module")
def base(photo_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "run"
    run(photo_folder, out, styles=False, epochs=1, probe="none")
    return out


def fresh(**settings):
    return make_encoder(PretrainConfig(**{**TINY, "seed": 5, **settings}))


def backbone(state):
    return {k: v for k, v in state.items() if k.startswith("backbone.")}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_from_a_run_come_the_backbone_and_the_projectors_of_its_spaces(base):
    encoder = fresh()
    assert "projectors of content" in initialise(encoder, str(base))
    assert same(backbone(encoder.state_dict()), backbone(weights(base)))
    assert torch.equal(encoder.projectors["content"][0].weight, weights(base)["projectors.content.0.weight"])
    wider = fresh(dim=16)
    assert "new projectors" in initialise(wider, str(base))


def test_first_the_projectors_alone_then_everything(base, photo_folder, tmp_path):
    done = run(photo_folder, tmp_path, init=str(base), projector_epochs=1, epochs=1, probe="none")
    middle = weights(tmp_path / "projectors")
    assert same(backbone(middle), backbone(weights(base)))
    assert not torch.equal(middle["projectors.content.0.weight"], weights(base)["projectors.content.0.weight"])
    assert not same(backbone(weights(tmp_path)), backbone(middle))
    assert done.steps == 5
    again = run(photo_folder, tmp_path, init=str(base), projector_epochs=1, epochs=1, probe="none")
    assert again.resumed_from == 5


def test_the_projectors_alone_keep_the_backbones_batch_norm(photo_folder, tmp_path):
    settings = {"backbone": "test_resnet", "epochs": 1, "probe": "none"}
    run(photo_folder, tmp_path / "base", styles=False, **settings)
    run(photo_folder, tmp_path / "run", init=str(tmp_path / "base"), projector_epochs=1, **{**settings, "epochs": 0})
    assert same(backbone(weights(tmp_path / "run")), backbone(weights(tmp_path / "base")))


@pytest.mark.parametrize("prefix", ["", "module.", "module.encoder.", "backbone."])
def test_checkpoints_of_others(tmp_path, prefix):
    theirs = {k.removeprefix("backbone."): v for k, v in backbone(fresh(seed=9).state_dict()).items()}
    state = {prefix + k: v.contiguous() for k, v in theirs.items()} | {prefix + "fc.weight": torch.zeros(2, 3)}
    save_file(state, tmp_path / "w.safetensors")
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "w.pth")
    for name in ("w.safetensors", "w.pth"):
        encoder = fresh()
        initialise(encoder, str(tmp_path / name))
        assert all(torch.equal(v, theirs[k]) for k, v in encoder.backbone.state_dict().items())


def test_a_torchvision_checkpoint(tmp_path):
    from torchvision.models import resnet18

    torch.save(resnet18().state_dict(), tmp_path / "resnet18.pth")
    assert "backbone from" in initialise(fresh(backbone="resnet18"), str(tmp_path / "resnet18.pth"))


class Evil:
    def __reduce__(self):
        return (print, ("code was run",))


def test_pickled_code_is_not_run(tmp_path, capsys):
    torch.save({"state_dict": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(UnweaveError, match="without running code") as error:
        initialise(fresh(), str(tmp_path / "evil.pth"))
    assert "\n" not in str(error.value)
    assert "code was run" not in capsys.readouterr().out


def test_weights_of_another_network_are_refused(tmp_path, base):
    with pytest.raises(UnweaveError, match="another network than --backbone"):
        initialise(fresh(backbone="test_resnet"), str(base))
    (tmp_path / "x.pth").write_bytes(b"no weights")
    for init in (tmp_path / "x.pth", tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UnweaveError) as error:
            initialise(fresh(), str(init))
        assert "\n" not in str(error.value)
