"""Morlet wavelets and the Gaussian low-pass of the scattering transform, in the Fourier domain.

Source: bruna2013, section 2.1, with the parameters of kymatio 0.3 (andreux2020), whose features
the papers used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpfl.data.image_shapes import ANGLES, SCALES

Array = NDArray[np.float64]

_WIDTH = 0.8  # of the envelope at scale 0, in pixels
_FREQUENCY = 0.75 * np.pi  # of the wave at scale 0, in radians per pixel
_SLANT = 4 / ANGLES  # across the wave the envelope is 1/slant times as wide as along it
_PERIODS = 2  # of the image on each side, on which the filters are summed up: more would add less than 1e-12
_KYMATIO_PI = 3.1415  # in the norm of the envelopes, kept so that features agree with published ones


def wavelets(size: int, scale: int) -> Array:
    """Return the Fourier transforms of the Morlet wavelets of a scale, (8, size, size), real, by angle.

    psi(u) = g(u) (exp(i xi.u) - kappa), g a Gaussian envelope of width 0.8 * 2**scale along the wave, |xi| =
    3 pi/4 / 2**scale, and kappa such that psi sums to 0; periodic with period `size` on both axes. Angle k has xi in
    direction (3 - k) pi/8 from the first axis.
    """
    spectra = []
    for angle in range(ANGLES):
        direction = (ANGLES // 2 - 1 - angle) * np.pi / ANGLES
        width = _WIDTH * 2**scale
        wave = _wave_packet(size, width, _SLANT, direction, _FREQUENCY / 2**scale)
        envelope = _wave_packet(size, width, _SLANT, direction, 0.0)
        spectra.append(np.fft.fft2(wave - wave.sum() / envelope.sum() * envelope).real)
    return np.stack(spectra)


def low_pass(size: int) -> Array:
    """Return the Fourier transform of the Gaussian low-pass of width 0.8 * 2**(J - 1), (size, size), real."""
    return np.fft.fft2(_wave_packet(size, _WIDTH * 2 ** (SCALES - 1), 1.0, 0.0, 0.0)).real


def subsampled(spectrum: Array) -> Array:
    """Return the lower half of the frequencies of a filter (size, size), as (size/2, size/2); size a multiple of 4."""
    quarter = len(spectrum) // 4
    low = np.r_[:quarter, 3 * quarter : 4 * quarter]
    return spectrum[np.ix_(low, low)]


def _wave_packet(size: int, width: float, slant: float, direction: float, frequency: float) -> NDArray[np.complex128]:
    """Return a normalised Gaussian envelope times a plane wave, on a periodic grid, its middle at pixel (0, 0)."""
    axis = np.arange(-_PERIODS * size, (_PERIODS + 1) * size)
    first, second = axis[:, None], axis[None, :]
    along = np.cos(direction) * first + np.sin(direction) * second
    across = np.cos(direction) * second - np.sin(direction) * first
    packet = np.exp(-(along**2 + (slant * across) ** 2) / (2 * width**2) + 1j * frequency * along)
    periods = 2 * _PERIODS + 1
    return packet.reshape(periods, size, periods, size).sum(axis=(0, 2)) * slant / (2 * _KYMATIO_PI * width**2)
