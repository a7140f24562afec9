"""Descriptions of objects: complete by construction, comparable, and enough to build the object again."""

import copy
import json
import pickle

import pytest
import torch
from torch import nn

import unweave as uw
import unweave.augment as A
from unweave.describe import Described, describe, differences, rebuild
from unweave.errors import UnweaveError

OBJECTS = [
    A.ColorJitter(0.4, (0.5, 1.0), hue=0.1, p=0.3),
    A.RandomResizedCrop((8, 9), interpolation="bicubic"),
    A.RandomPadOrCrop(2.0),
    A.Views({"color": [A.ColorJitter(hue=0.5)], "blur": A.Asymmetric([A.GaussianBlur(3)], [A.GaussianBlur(3, p=0.1)])}),
    uw.SmallConvNet(16, layers=((4, 2), (8, 1)), pooled=True),
    uw.Encoder(uw.SmallConvNet(16), ("content", "x"), dim={"content": 3, "x": 2}, output="nonnegative"),
    uw.SimCLR(0.3),
    uw.DisentangledLoss(
        uw.VICReg(covariance_weight=1.5),
        spaces=("content", "x"),
        lambda_rule=uw.GeometricGrowth(rate=0.1, start={"content": 1.0, "x": 2.0}),
        independence=uw.Independence(weight=2.0),
    ),
]


@pytest.mark.parametrize("thing", OBJECTS, ids=lambda thing: type(thing).__name__)
def test_an_object_of_ours_is_rebuilt_from_its_description(thing):
    description = json.loads(json.dumps(describe(thing)))
    again = rebuild(description)
    assert type(again) is type(thing)
    assert json.loads(json.dumps(describe(again))) == description


class Base(Described):
    def __init__(self, a, *, b=2):
        self.made = (a, b)


class Derived(Base):
    def __init__(self, c, **rest):
        super().__init__(c + 1, **rest)


class Renamed(Derived):
    pass


def test_every_argument_of_the_constructor_that_was_called_is_in_it():
    assert describe(Base(1))["b"] == 2
    assert describe(Derived(5, b=7)) == {"class": "test_describe.Derived", "c": 5, "rest": {"b": 7}}
    assert describe(Renamed(5))["class"] == "test_describe.Renamed"


def test_a_wrong_argument_is_the_constructors_own_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'd'"):
        Base(1, d=3)


def test_copies_and_pickles_keep_their_description():
    encoder = uw.Encoder(uw.SmallConvNet(16), ("content",))
    for again in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert describe(again) == describe(encoder)


def test_foreign_objects_are_compared_by_what_is_known_of_them():
    assert describe(nn.Linear(2, 3)) == describe(nn.Linear(2, 3)) != describe(nn.Linear(2, 4))
    assert describe(torch.zeros(3)) == describe(torch.zeros(3)) != describe(torch.ones(3))
    assert describe(json.dumps) == {"function": "json.dumps"}

    class Bare:
        def __init__(self, size):
            self.size = size

    assert describe(Bare(1)) == describe(Bare(1)) != describe(Bare(2))


@pytest.mark.parametrize(
    "description",
    [{"class": "os.system", "command": "x"}, {"class": "unweave.augment.Nothing"}, {"class": "unweave.train"}],
)
def test_only_described_classes_of_ours_are_constructed(description):
    with pytest.raises(UnweaveError):
        rebuild(description)


def test_differences_have_a_place():
    assert differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == [("a[1].b", 2, 3)]
    assert differences({"a": [1]}, {"a": [1, 2]}) == [("a", [1], [1, 2])]
    assert differences({"class": "x", "a": 1}, {"class": "y", "a": 1}) == [
        ("", {"class": "x", "a": 1}, {"class": "y", "a": 1})
    ]
    assert differences({"a": 1}, {"a": 1}) == []
