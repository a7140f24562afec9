import copy
import re

import pytest
import torch
from torch import nn

from unweave.describe import describe, rebuild
from unweave.errors import UnweaveError
from unweave.models import Encoder, SmallConvNet, make_backbone
from unweave.models.encoder import NonNegative, projector

SPACES = ("content", "color", "spatial")
IMAGES = torch.rand(2, 3, 64, 64)


@pytest.mark.parametrize(
    ("name", "dim"),
    [("resnet18", 512), ("mobilenet_v3_small", 1024), ("convnext_tiny", 768), ("timm/resnet10t", 512)],
)
def test_backbones_by_name_give_features_and_their_size(name, dim):
    backbone, features = make_backbone(name)
    assert features == dim
    assert backbone.eval()(IMAGES).shape == (2, dim)


@pytest.mark.parametrize("name", ["resnet18", "timm/resnet10t", "mobilenet_v3_small"])
@pytest.mark.parametrize("channels", [1, 5])
def test_backbones_by_name_take_any_number_of_channels(name, channels):
    backbone, dim = make_backbone(name, channels=channels)
    assert backbone.eval()(torch.rand(2, channels, 64, 64)).shape == (2, dim)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "test_vit"])
def test_vision_transformers_are_built_for_the_size_of_the_images(name):
    encoder = Encoder(name, ("content",), image_size=64, dim=4)
    assert encoder(IMAGES)["content"].shape == (2, 4)


def test_a_backbone_with_its_classifier_is_refused_in_one_line():
    import timm

    encoder = Encoder(timm.create_model("test_resnet"), ("content",))
    with pytest.raises(UnweaveError, match="remove its classifier") as error:
        encoder(IMAGES)
    assert "\n" not in str(error.value)


def test_the_small_image_stem_keeps_the_resolution():
    backbone, _ = make_backbone("resnet18", small_images=True)
    assert backbone.conv1(IMAGES).shape[-1] == 64
    assert isinstance(backbone.maxpool, nn.Identity)
    assert backbone(IMAGES[:, :, :32, :32]).shape == (2, 512)


def test_pooled_features_of_the_small_network_do_not_depend_on_position():
    net = SmallConvNet(64, layers=((4, 2), (6, 2)), dim=16, pooled=True).eval()
    spot = torch.zeros(2, 3, 64, 64)
    spot[0, :, 10:18, 10:18] = spot[1, :, 30:38, 42:50] = 1
    h = net(spot)
    assert h.shape == (2, net.num_features) == (2, 16 + 2 * 6)
    assert not torch.allclose(h[0, :16], h[1, :16])
    torch.testing.assert_close(h[0, 16:], h[1, 16:])


def test_one_projector_a_space_with_its_own_width_and_depth():
    encoder = Encoder(
        SmallConvNet(64),
        SPACES,
        dim={"content": 8, "color": 3, "spatial": 5},
        hidden={"content": 32, "color": 16, "spatial": 16},
        depth={"content": 3, "color": 1, "spatial": 2},
    )
    out = encoder(IMAGES)
    assert {name: z.shape[1] for name, z in out.items()} == {"h": 128, "content": 8, "color": 3, "spatial": 5}
    linear = [m for m in encoder.projectors["content"] if isinstance(m, nn.Linear)]
    assert [(m.in_features, m.out_features) for m in linear] == [(128, 32), (32, 32), (32, 8)]
    assert len(encoder.projectors["color"]) == 1


def test_spaces_share_the_backbone_and_nothing_else():
    encoder = Encoder(SmallConvNet(64), SPACES, dim=4, hidden=8)
    encoder(IMAGES)["color"].square().sum().backward()
    assert all(p.grad is None for p in encoder.projectors["content"].parameters())
    assert all(p.grad is not None for p in encoder.backbone.parameters())


@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
def test_a_fraction_of_the_style_gradient_reaches_the_backbone(fraction):
    def gradients(style_gradient, space):
        torch.manual_seed(0)
        backbone = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
        encoder = Encoder(backbone, ("content", "color"), dim=3, depth=1, feature_dim=5, style_gradient=style_gradient)
        images = torch.rand(4, 3, 2, 2)
        out = encoder(images)
        out[space].square().sum().backward()
        return out[space], backbone[1].weight.grad, encoder.projectors[space][0].weight.grad

    for space, expected in (("content", 1.0), ("color", fraction)):
        whole, part = gradients(1.0, space), gradients(fraction, space)
        assert torch.equal(whole[0], part[0])
        assert torch.allclose(part[1], expected * whole[1], atol=1e-6)
        assert torch.equal(part[2], whole[2])


def test_one_projector_split_by_fractions():
    encoder = Encoder(SmallConvNet(64), SPACES, dim=10, hidden=8, split={"content": 0.5, "color": 0.2, "spatial": 0.3})
    out = encoder(IMAGES)
    assert [out[s].shape[1] for s in SPACES] == [5, 2, 3]
    whole = encoder.projectors["all"](out["h"])
    torch.testing.assert_close(torch.cat([out[s] for s in SPACES], 1), whole)


@pytest.mark.parametrize("name", ["resnet18", "test_resnet"])
def test_every_space_reads_from_its_own_copy_of_the_last_stage(name):
    torch.manual_seed(0)
    encoder = Encoder(name, SPACES, dim=4, hidden=8, branches=True)
    _, dim = make_backbone(name)
    out = encoder(IMAGES)
    assert out["h"].shape == (2, 3 * dim)
    assert encoder.feature_dim == 3 * dim
    torch.testing.assert_close(out["h"][:, :dim], out["h"][:, dim : 2 * dim])  # copies of the same weights
    out["color"].square().sum().backward()
    trained = [sum(p.grad.abs().sum() for p in stage.parameters()) > 0 for stage in encoder.backbone.layer4]
    assert trained == [False, True, False]
    assert sum(p.grad.abs().sum() for p in encoder.backbone.layer3.parameters()) > 0


@pytest.mark.parametrize(
    "options", [{}, {"branches": True}, {"split": {"content": 0.5, "color": 0.25, "spatial": 0.25}}]
)
def test_the_encoder_knows_the_size_of_every_space(options):
    encoder = Encoder("test_resnet", SPACES, dim=8, hidden=8, **options)
    assert encoder.dims == {space: z.shape[1] for space, z in encoder(IMAGES).items() if space != "h"}


@pytest.mark.parametrize("split", [None, {"content": 0.5, "color": 0.2, "spatial": 0.3}])
def test_a_nonnegative_space_is_in_the_nonnegative_orthant_and_the_others_are_unchanged(split):
    torch.manual_seed(0)
    whole = Encoder(SmallConvNet(64), SPACES, dim=10, hidden=8, split=split).eval()
    output = {"content": "linear", "color": "nonnegative", "spatial": "linear"}
    orthant = Encoder(SmallConvNet(64), SPACES, dim=10, hidden=8, split=split, output=output).eval()
    orthant.load_state_dict(whole.state_dict())
    before, after = whole(IMAGES), orthant(IMAGES)
    assert list(before) == list(after)
    assert all(torch.equal(before[s], after[s]) for s in ("h", "content", "spatial"))
    torch.testing.assert_close(after["color"], before["color"].softmax(1).sqrt())
    torch.testing.assert_close(after["color"].norm(dim=1), torch.ones(2))


def test_at_the_boundary_of_the_orthant_the_gradient_is_finite():
    z = torch.tensor([[200.0, -200.0, 0.0]], requires_grad=True)
    NonNegative()(z).sum().backward()
    assert torch.isfinite(z.grad).all()


def test_any_module_can_be_the_backbone():
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 7))
    assert Encoder(module, ("content",), feature_dim=7)(IMAGES)["h"].shape == (2, 7)


def test_a_projector_of_the_papers_shape():
    layers = projector(512, 8192, 3, 2048)
    assert [type(m).__name__ for m in layers] == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear"]
    assert layers[-1].bias is None


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Encoder("resnet19", SPACES), "resnet19"),
        (lambda: Encoder(nn.Flatten(), SPACES), "feature_dim"),
        (lambda: Encoder("resnet18", ("content", "h")), "'h'"),
        (lambda: Encoder("resnet18", SPACES, dim={"content": 3}), "names the spaces"),
        (lambda: Encoder("resnet18", SPACES, dim=0), "at least 1"),
        (lambda: Encoder("resnet18", SPACES, output={"size": "unit"}), "`output` names the spaces"),
        (lambda: Encoder("resnet18", SPACES, output="odd"), "`output` is one of linear, .* not 'odd'"),
        (lambda: Encoder("resnet18", SPACES, split={"content": 0.5, "color": 0.2, "spatial": 0.2}), "fraction"),
        (lambda: make_backbone("convnext_tiny", small_images=True), "stem"),
        (lambda: Encoder("mobilenet_v3_small", SPACES, branches=True), "use a ResNet as `backbone`"),
        (lambda: Encoder("resnet18", SPACES, branches=True, split=dict.fromkeys(SPACES, 1 / 3)), "remove `split`"),
    ],
)
def test_bad_settings_are_refused_in_one_line(build, words):
    with pytest.raises(UnweaveError, match=words) as error:
        build()
    assert "\n" not in str(error.value)


def test_the_output_layer_gives_the_geometry_of_the_loss():
    from unweave import BarlowTwins, SimCLR

    images = torch.rand(32, 3, 16, 16)
    unit = Encoder(SmallConvNet(16), SPACES, dim=8, output="unit")(images)["color"]
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(32))
    torch.testing.assert_close(SimCLR().normalize(unit), unit * 8**0.5)
    encoder = Encoder(SmallConvNet(16), SPACES, dim=8, output="standardised")
    standardised = encoder(images)["color"]
    torch.testing.assert_close(BarlowTwins().normalize(standardised), standardised, rtol=0.01, atol=1e-3)
    assert not list(encoder.outputs.parameters())
    with torch.autocast("cpu", torch.bfloat16):
        rounded = Encoder(SmallConvNet(16), SPACES, dim=8, output="unit")(images)["color"]
    assert rounded.dtype == torch.float32


def test_style_projectors_read_chosen_layers_and_content_reads_h():
    encoder = Encoder("resnet18", SPACES, dim=4, hidden=8, style_layers=("layer1", "layer3"), style_grid=2).eval()
    images, maps = torch.rand(2, 3, 64, 64), {}
    for name in ("layer1", "layer3"):
        encoder.backbone.get_submodule(name).register_forward_hook(
            lambda m, i, out, name=name: maps.update({name: out})
        )
    found = encoder(images)
    pooled = [nn.functional.adaptive_avg_pool2d(maps[name], 2).flatten(1) for name in ("layer1", "layer3")]
    for space in SPACES[1:]:
        torch.testing.assert_close(found[space], encoder.projectors[space](torch.cat(pooled, 1)))
    torch.testing.assert_close(found["content"], encoder.projectors["content"](found["h"]))


def test_a_copy_of_an_encoder_reads_its_own_layers():
    encoder = Encoder("resnet18", SPACES, dim=4, hidden=8, style_layers=("layer2",)).eval()
    copied = copy.deepcopy(encoder)
    with torch.no_grad():
        for parameter in encoder.backbone.parameters():
            parameter.zero_()
    images = torch.rand(2, 3, 32, 32)
    assert not torch.allclose(copied(images)[SPACES[1]], encoder(images)[SPACES[1]])
    rebuilt = rebuild(describe(copied)).eval()
    rebuilt.load_state_dict(copied.state_dict())
    torch.testing.assert_close(rebuilt(images)[SPACES[1]], copied(images)[SPACES[1]])


def test_without_a_gradient_from_styles_the_layers_are_trained_by_content_alone():
    encoder = Encoder("resnet18", SPACES, dim=4, hidden=8, style_layers=("layer1",), style_gradient=0.0)
    encoder(torch.rand(4, 3, 32, 32))[SPACES[1]].sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in encoder.backbone.parameters())
    assert all(p.grad is not None for p in encoder.projectors[SPACES[1]].parameters())


def test_a_fraction_of_the_gradient_of_styles_reaches_the_layers_they_read():
    def gradient(fraction):
        torch.manual_seed(0)
        encoder = Encoder("resnet18", SPACES, dim=4, hidden=8, style_layers=("layer1",), style_gradient=fraction)
        encoder(IMAGES)[SPACES[1]].square().sum().backward()
        return encoder.backbone.conv1.weight.grad

    whole, part = gradient(1.0), gradient(0.3)
    assert (part - 0.3 * whole).norm() < 1e-3 * part.norm()


def test_automatic_style_layers_are_a_resnets_stages_and_h_of_other_networks():
    resnet = Encoder("resnet18", SPACES, dim=4, hidden=8, style_layers="auto")
    assert resnet.projectors["content"][0].in_features == 512
    assert resnet.projectors[SPACES[1]][0].in_features == 64 + 128 + 256
    other = Encoder(nn.Flatten(), SPACES, dim=4, hidden=8, style_layers="auto", feature_dim=12)
    assert other.projectors[SPACES[1]][0].in_features == 12


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"style_layers": ("layer9",)}, "has no module 'layer9'; there are conv1"),
        ({"style_layers": ("avgpool", "fc")}, "is not a feature map"),
        ({"style_layers": ("layer1",), "style_grid": 0}, "`style_grid` must be at least 1"),
        ({"style_layers": ("layer1",), "branches": True}, "remove `style_layers`"),
        (
            {"style_layers": ("layer1",), "split": {"content": 0.5, "color": 0.5}, "spaces": ("content", "color")},
            "`split`",
        ),
    ],
)
def test_layers_that_cannot_be_read_are_refused_in_one_line(options, words):
    with pytest.raises(UnweaveError, match=re.escape(words)):
        Encoder("resnet18", **{"spaces": SPACES, "dim": 4, "hidden": 8, **options})
