"""The filters of the scattering transform: kymatio's, and what their definition promises."""

import json
import math

import numpy as np
import pytest
import torch
from kymatio.scattering2d.filter_bank import filter_bank
from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D

from dpfl.errors import InputError
from dpfl.features.scattering import CHUNK_IMAGES, ScatterNet, build_features, low_pass, subsampled, wavelets


@pytest.mark.parametrize("size", [12, 36, 40])
def test_equal_to_kymatio_s(size):
    bank = filter_bank(size, size, 2, 8)
    for scale in (0, 1):
        theirs = np.stack([psi["levels"][0] for psi in bank["psi"] if psi["j"] == scale])
        np.testing.assert_allclose(wavelets(size, scale), theirs, rtol=0, atol=1e-6)
    low, low_half = bank["phi"]["levels"]
    np.testing.assert_allclose(low_pass(size), low, rtol=0, atol=1e-6)
    np.testing.assert_allclose(subsampled(low_pass(size)), low_half, rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [0, 1])
def test_a_wavelet_has_mean_0_and_its_peak_where_its_wave_is(scale):
    """Angle k has its wave in direction (3 - k) pi/8, of 3 pi/4 / 2**scale radians a pixel."""
    size = 72
    spectra = wavelets(size, scale)
    assert np.abs(spectra[:, 0, 0]).max() < 1e-14
    for angle, spectrum in enumerate(spectra):
        peak = np.array(np.unravel_index(spectrum.argmax(), spectrum.shape)) * 2 * np.pi / size
        direction = (3 - angle) * np.pi / 8
        wave = 0.75 * np.pi / 2**scale * np.array([np.cos(direction), np.sin(direction)])
        apart = (peak - wave + np.pi) % (2 * np.pi) - np.pi
        assert np.abs(apart).max() <= 2.5 * 2 * np.pi / size  # a grid step, and the correction of the mean moves it


def test_the_low_pass_is_a_gaussian_of_mass_1():
    """The continuous transform exp(-width^2 w^2 / 2), sampled: aliases are below 7e-6, kymatio's pi is off by 3e-5."""
    size, width = 72, 1.6
    frequencies = 2 * np.pi * np.fft.fftfreq(size)
    expected = np.exp(-(width**2) * (frequencies[:, None] ** 2 + frequencies**2) / 2)
    aliases = 2 * np.exp(-(width**2) * np.pi**2 / 2)
    np.testing.assert_allclose(low_pass(size) * 3.1415 / np.pi, expected, rtol=0, atol=aliases)


def test_subsampling_keeps_the_low_frequencies_in_their_order():
    spectrum = np.arange(64.0).reshape(8, 8)
    kept = [0, 1, 6, 7]
    assert np.array_equal(subsampled(spectrum), spectrum[kept][:, kept])


def _images(count: int, channels: int, size: int) -> torch.Tensor:
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(("channels", "size", "shape"), [(1, 28, (81, 7, 7)), (3, 32, (243, 8, 8)), (1, 8, (81, 2, 2))])
def test_equals_kymatio(channels, size, shape):
    images = _images(5, channels, size)
    ours = ScatterNet(size)(images)
    theirs = ScatteringTorch2D(J=2, shape=(size, size), L=8)(images)
    assert ours.shape == (5, *shape)
    torch.testing.assert_close(ours, theirs.reshape(ours.shape), rtol=0, atol=1e-5)


def test_chunks_do_not_change_an_image_beyond_rounding():
    images = _images(CHUNK_IMAGES + 3, 1, 8)
    scatter = ScatterNet(8, dtype=torch.float64)
    together = scatter(images.double())
    single = torch.cat([scatter(image[None]) for image in images.double()])
    torch.testing.assert_close(together, single, rtol=0, atol=1e-14)


def test_a_constant_image_keeps_its_mean_and_has_no_wavelet_response():
    features = ScatterNet(28, dtype=torch.float64)(torch.full((1, 1, 28, 28), 0.7, dtype=torch.float64))
    mass = math.pi / 3.1415  # of kymatio's low-pass
    expected = torch.full((7, 7), 0.7 * mass, dtype=torch.float64)
    torch.testing.assert_close(features[0, 0], expected, rtol=0, atol=1e-12)
    assert features[0, 1:].abs().max() < 1e-12


@pytest.mark.parametrize("size", [27, 30, 4])
def test_refuses_sizes_that_do_not_subsample(size):
    with pytest.raises(InputError, match="multiple of 4"):
        ScatterNet(size)


def test_refuses_images_of_another_size():
    with pytest.raises(InputError, match="32 x 32"):
        ScatterNet(28)(_images(1, 1, 32))


@pytest.fixture
def arrays(tmp_path):
    folder = tmp_path / "arrays"
    folder.mkdir()
    draw = np.random.default_rng(0)
    for part, count in (("train_x", CHUNK_IMAGES + 2), ("test_x", 3)):
        np.save(folder / f"{part}.npy", draw.integers(0, 256, (count, 3, 8, 8), dtype=np.uint8))
        np.save(folder / f"{part[:-1]}y.npy", np.arange(count, dtype=np.int64) % 10)
    description = {"name": "tiny", "title": "Tiny", "stand_in_for": "cifar10", "note": "", "licence": "none"}
    (folder / "description.json").write_text(
        json.dumps({**description, "records": {"train": CHUNK_IMAGES + 2, "test": 3}})
    )
    return folder


def test_build_features_writes_complete_files_and_repeats_bit_for_bit(arrays, tmp_path):
    seen = []
    for name in ("a", "b"):
        build_features(arrays, tmp_path / name, lambda done, total: seen.append((done, total)))
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["description.json", "test_x.npy", "train_x.npy"]
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    features = np.load(tmp_path / "a" / "train_x.npy")
    assert features.dtype == np.float32
    assert features.shape == (CHUNK_IMAGES + 2, 243, 2, 2)
    pixels = torch.from_numpy(np.load(arrays / "train_x.npy")[-1:].astype(np.float32) / 255)
    np.testing.assert_allclose(features[-1:], ScatterNet(8)(pixels).numpy(), rtol=0, atol=1e-6)
    description = json.loads((tmp_path / "a" / "description.json").read_text())
    assert description["stand_in_for"] == "cifar10"
    assert "J = 2" in description["features"]
    assert seen[-1] == (CHUNK_IMAGES + 5, CHUNK_IMAGES + 5)


def test_build_features_names_the_file_that_is_wrong(arrays, tmp_path):
    np.save(arrays / "test_x.npy", np.zeros((2, 3, 8, 8), dtype=np.float32))
    with pytest.raises(InputError, match=r"test_x\.npy"):
        build_features(arrays, tmp_path / "out", lambda done, total: None)
    (arrays / "train_x.npy").unlink()
    with pytest.raises(InputError, match=r"train_x\.npy"):
        build_features(arrays, tmp_path / "out", lambda done, total: None)
