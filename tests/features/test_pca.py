"""Principal components against scikit-learn's."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.decomposition import PCA

from dpfl.errors import InputError
from dpfl.features import pca
from dpfl.features.pca import noisy_second_moments, principal_components


@pytest.fixture
def images() -> np.ndarray:
    """Forty images of 5 x 4 pixels with a few strong directions."""
    rng = np.random.default_rng(2)
    patterns = rng.normal(size=(40, 3)) * [60, 30, 15] @ rng.normal(size=(3, 20))
    return np.clip(128 + patterns + rng.normal(0, 3, (40, 20)), 0, 255).astype(np.uint8).reshape(40, 1, 5, 4)


def test_scores_are_scikit_learns_but_for_signs(images, monkeypatch):
    monkeypatch.setattr(pca, "CHUNK_IMAGES", 7)
    pixels = images.reshape(40, 20) / 255.0
    theirs = PCA(6, svd_solver="full").fit(pixels)
    ours = pca.PrincipalComponents.fit(images, 6)
    expected = theirs.transform(pixels)
    scores = ours.scores(images)
    signs = np.sign((scores * expected).sum(axis=0))
    np.testing.assert_allclose(scores, expected * signs, atol=1e-11)
    assert ours.explained_share == pytest.approx(theirs.explained_variance_ratio_.sum(), rel=1e-10)


def test_signs_are_fixed_and_the_order_of_images_does_not_matter(images):
    ours = pca.PrincipalComponents.fit(images, 4)
    again = pca.PrincipalComponents.fit(images[::-1], 4)
    assert np.array_equal(ours.axes, again.axes) and np.array_equal(ours.mean, again.mean)
    assert (ours.axes[np.abs(ours.axes).argmax(axis=0), np.arange(4)] > 0).all()
    np.testing.assert_allclose(ours.axes.T @ ours.axes, np.eye(4), atol=1e-12)


@pytest.mark.parametrize("components", [0, 21])
def test_a_number_of_components_that_there_is_not_is_named(images, components):
    with pytest.raises(InputError, match=f"components: {components} of 40 images"):
        pca.PrincipalComponents.fit(images, components)


def inputs(records=200, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(records, 6, generator=draw, dtype=torch.float64) * torch.tensor([5.0, 3, 2, 1, 0.5, 0.1])


def released(x, bound=1e6, sigma=0.0, seed=0):
    noise = torch.randn(x.shape[1], x.shape[1], generator=torch.Generator().manual_seed(seed), dtype=x.dtype)
    return noisy_second_moments(x, bound=bound, noise_multiplier=sigma, noise=noise)


def test_without_noise_the_components_are_the_right_singular_vectors():
    x = inputs()
    components = principal_components(released(x), 3)
    vectors = np.linalg.svd(x.numpy(), full_matrices=False)[2][:3].T
    np.testing.assert_allclose(np.abs(components.numpy().T @ vectors), np.eye(3), atol=1e-9)
    assert (components.gather(0, components.abs().argmax(0, keepdim=True)) > 0).all()


@pytest.mark.parametrize("bound", [0.5, 4.0])
def test_replacing_a_record_moves_the_triangle_by_at_most_the_sensitivity(bound):
    x, worst = inputs(), 0.0
    for place in range(20):
        for value in (torch.zeros(6), 100 * torch.eye(6)[place % 6]):
            other = x.clone()
            other[place] = value
            change = len(x) * (released(x, bound) - released(other, bound))
            worst = max(worst, float(change.triu().norm()), float(change.norm()))
    assert bound**2 < worst <= math.sqrt(2) * bound**2


def test_the_noise_is_symmetric_and_of_the_stated_deviation():
    x = torch.zeros(10, 80, dtype=torch.float64)
    noisy = released(x, bound=3.0, sigma=2.0) * len(x)
    assert torch.equal(noisy, noisy.T)
    upper = noisy[tuple(torch.triu_indices(80, 80))].numpy() / (2.0 * math.sqrt(2) * 9)
    assert stats.kstest(upper, "norm").pvalue > 1e-6  # false-alarm rate
    assert stats.kstest(upper * 1.5, "norm").pvalue < 1e-6


def test_more_components_than_features_are_refused():
    with pytest.raises(InputError, match="components: is 7"):
        principal_components(torch.eye(6), 7)
