"""Principal components against scikit-learn's."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from dpfl.errors import InputError
from dpfl.features import pca


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
