import math

import pytest
import torch
from scipy.spatial import cKDTree

from unweave.reproduce.identifiability.entropy import (
    gaussian_coordinates_entropy,
    kth_neighbour,
    nearest_neighbour_entropy,
)


@pytest.mark.parametrize("d", [1, 2, 4])
def test_entropy_of_a_gaussian_is_the_one_in_closed_form(d):
    z = torch.randn(6000, d) * 2.0
    expected = d / 2 * math.log(2 * math.pi * math.e) + d * math.log(2)
    assert abs(nearest_neighbour_entropy(z) - expected) < 0.05


def test_entropy_of_a_uniform_distribution_is_the_logarithm_of_its_volume():
    assert abs(nearest_neighbour_entropy(torch.rand(6000, 2) * 3) - math.log(9)) < 0.05


def test_entropy_on_the_cube_is_largest_where_the_coordinates_are_standard_normal():
    z = torch.randn(6000, 2)
    assert abs(gaussian_coordinates_entropy(z)) < 0.05
    for other in (0.5 * z, 2 * z, z + 1, torch.stack([z[:, 0], z[:, 0] + 0.1 * z[:, 1]], 1)):
        assert gaussian_coordinates_entropy(other) < -0.2


def test_it_agrees_with_the_same_measured_on_the_cube_where_the_boundary_is_far():
    z = 0.3 * torch.randn(5000, 1)
    on_the_cube = nearest_neighbour_entropy(torch.special.ndtr(z))
    assert abs(gaussian_coordinates_entropy(z) - on_the_cube) < 0.04


@pytest.mark.parametrize("k", [1, 3])
def test_neighbours_are_those_of_scipys_tree(k):
    z = torch.randn(2, 500, 5) * 3 + 7
    for mine, rows in zip(kth_neighbour(z, k), z, strict=True):
        distances, _ = cKDTree(rows.numpy()).query(rows.numpy(), k=k + 1)
        found = (rows - rows[mine.squeeze(1)]).norm(dim=1)
        torch.testing.assert_close(found, torch.from_numpy(distances[:, -1]).float(), rtol=1e-3, atol=1e-4)


def test_gradient_pushes_the_nearest_apart():
    z = torch.tensor([[0.0], [0.1], [5.0]], requires_grad=True)
    nearest_neighbour_entropy(z, k=1).backward()
    assert z.grad[0] < 0 < z.grad[1]


def test_a_batch_is_its_parts():
    z = torch.randn(3, 200, 2)
    torch.testing.assert_close(nearest_neighbour_entropy(z), torch.stack([nearest_neighbour_entropy(x) for x in z]))
