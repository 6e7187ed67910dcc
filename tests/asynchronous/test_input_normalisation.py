import numpy as np
import pytest
import torch

from dpfl.asynchronous.schedules import InputNormalisation, normalised, prepare


def data(features=12):
    draw = torch.Generator().manual_seed(0)
    train = torch.rand(90, features, generator=draw) * torch.linspace(0.2, 0.9, features)
    return train, torch.rand(20, features, generator=draw), np.split(np.random.default_rng(0).permutation(90), 3)


def prepared(preparation, sigma=0.0, seed=0, components=4):
    return prepare(preparation, *data(), sigma=sigma, components=components, seed=seed)


def test_without_preparation_inputs_are_left_alone():
    train, test = prepared(InputNormalisation.NONE)
    assert torch.equal(train, data()[0]) and torch.equal(test, data()[1])


def test_exact_normalisation_uses_the_moments_of_all_clients():
    train, test = prepared(InputNormalisation.NORMALISED_EXACTLY)
    inputs = data()[0]
    deviation = inputs.std(0, unbiased=False).clamp(min=0.1)
    torch.testing.assert_close(train, (inputs - inputs.mean(0)) / deviation, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(test, (data()[1] - inputs.mean(0)) / deviation, rtol=1e-3, atol=1e-3)


def test_exact_components_keep_the_most_of_the_second_moment():
    train, test = prepared(InputNormalisation.EXACT_PCA)
    singular = torch.linalg.svdvals(data()[0])
    assert train.shape == (90, 4) and test.shape == (20, 4)
    assert float(train.square().sum()) == pytest.approx(float(singular[:4].square().sum()), rel=2e-3)


@pytest.mark.parametrize("preparation", [InputNormalisation.NORMALISED, InputNormalisation.DP_PCA])
def test_noise_is_addressed_and_fades_with_sigma(preparation):
    exact, noisy = prepared(preparation)[0], prepared(preparation, sigma=0.3)[0]
    assert torch.equal(noisy, prepared(preparation, sigma=0.3)[0])
    assert not torch.equal(noisy, prepared(preparation, sigma=0.3, seed=1)[0])
    assert (prepared(preparation, sigma=1e-6)[0] - exact).abs().max() < 1e-3 < (noisy - exact).abs().max()


def test_a_layer_normalised_record_depends_on_itself_alone():
    train, test, shares = data()
    other = train.clone()
    other[3] += 1.0
    one, two = (prepare(InputNormalisation.LAYER, x, test, shares, sigma=0.0, components=4, seed=0)[0]
                for x in (train, other))  # fmt: skip
    assert torch.equal(one[:3], two[:3]) and torch.equal(one[4:], two[4:])
    torch.testing.assert_close(one[0], (train[0] - train[0].mean()) / max(float(train[0].std(correction=0)), 0.1))


def test_batch_normalisation_is_left_to_the_batches_in_training():
    train, test = prepared(InputNormalisation.BATCH)
    assert torch.equal(train, data()[0])
    torch.testing.assert_close(test, prepared(InputNormalisation.NORMALISED_EXACTLY)[1], rtol=1e-3, atol=1e-3)
    batch = normalised(data()[0][:8], 0)
    torch.testing.assert_close(batch.mean(0), torch.zeros(12), rtol=0, atol=1e-5)
