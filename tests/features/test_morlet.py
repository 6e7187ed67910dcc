"""The filters of the scattering transform: kymatio's, and what their definition promises."""

import numpy as np
import pytest
from kymatio.scattering2d.filter_bank import filter_bank

from dpfl.features.morlet import low_pass, subsampled, wavelets


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
