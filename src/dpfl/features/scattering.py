"""ScatterNet features: the second-order scattering transform (J = 2, L = 8) of square images.

Morlet wavelets and the Gaussian low-pass act in the Fourier domain; every last low-pass, with its subsampling and
cropping, is linear and acts as one matrix product for all images of a chunk. Source of the wavelets: bruna2013, section
2.1, with the parameters of kymatio 0.3 (andreux2020), whose features the papers used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dpfl.data.datasets import ANGLES, COEFFICIENTS, SCALES, SUBSAMPLING
from dpfl.data.loading import load_images
from dpfl.errors import InputError
from dpfl.files import replacing, write_atomically

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


CHUNK_IMAGES = 64  # small enough that the second order stays in cache: larger chunks are slower on CPU


class ScatterNet:
    """Scattering transform of `size` x `size` images, equal to kymatio's Scattering2D(J=2, L=8) up to rounding.

    Calling it maps (n, channels, size, size) to (n, 81 * channels, size/4, size/4), both on `device`: the 81
    coefficients of channel 0 first, each channel's in kymatio's order (order 0; order 1 by scale, then angle; order 2).
    Raises InputError where the size is not a multiple of 4 or below 8. Source: oyallon2015; bhaskar2025.
    """

    def __init__(self, size: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> None:
        if size % SUBSAMPLING or size < 2 * SUBSAMPLING:
            raise InputError(f"scattering: images are {size} pixels wide, should be a multiple of 4, at least 8")
        self.size = size
        self.padded = ((size + SUBSAMPLING) // SUBSAMPLING + 1) * SUBSAMPLING
        low = low_pass(self.padded)
        self.fine, self.coarse, low_full, low_half = (
            torch.as_tensor(spectra, dtype=dtype, device=device)
            for spectra in (wavelets(self.padded, 0), wavelets(self.padded, 1), low, subsampled(low))
        )
        self.low_full = _low_pass_matrix(low_full, SUBSAMPLING)
        self.low_half = _low_pass_matrix(low_half, SUBSAMPLING // 2)

    def __call__(self, images: Tensor) -> Tensor:
        count, channels, height, width = images.shape
        if (height, width) != (self.size, self.size):
            raise InputError(f"scattering: images are {height} x {width}, should be {self.size} x {self.size}")
        planes = images.reshape(-1, self.size, self.size)
        features = torch.cat([self._transform(chunk) for chunk in planes.split(CHUNK_IMAGES)])
        side = self.size // SUBSAMPLING
        return features.reshape(count, channels * COEFFICIENTS, side, side)

    def _transform(self, planes: Tensor) -> Tensor:
        """Map (n, size, size) to (n, 81, (size/4)**2)."""
        before = (self.padded - self.size) // 2
        after = self.padded - self.size - before
        padded = functional.pad(planes[:, None], (before, after, before, after), mode="reflect")
        spectrum = torch.fft.fft2(padded)
        fine = torch.fft.ifft2(spectrum * self.fine).abs()
        coarse = torch.fft.ifft2(_alias(spectrum * self.coarse, 2)).abs()
        second = torch.fft.ifft2(_alias(torch.fft.fft2(fine)[:, :, None] * self.coarse, 2)).abs()
        return torch.cat(
            [
                padded.flatten(2) @ self.low_full,
                fine.flatten(2) @ self.low_full,
                coarse.flatten(2) @ self.low_half,
                second.flatten(1, 2).flatten(2) @ self.low_half,
            ],
            dim=1,
        )


def _alias(spectrum: Tensor, factor: int) -> Tensor:
    """Return the spectrum of the signal subsampled by `factor` along both last axes: the mean of its aliases."""
    height, width = spectrum.shape[-2] // factor, spectrum.shape[-1] // factor
    return spectrum.unflatten(-1, (factor, width)).unflatten(-3, (factor, height)).mean((-4, -2))


def _low_pass_matrix(low: Tensor, factor: int) -> Tensor:
    """Return low-pass, subsampling and removal of the one-pixel border as a matrix, (padded pixels, kept pixels)."""
    side = low.shape[-1]
    impulses = torch.eye(side * side, dtype=low.dtype, device=low.device).view(-1, side, side)
    response = torch.fft.ifft2(_alias(torch.fft.fft2(impulses) * low, factor)).real
    return response[:, 1:-1, 1:-1].flatten(1).contiguous()


def _reserve(path: Path) -> None:
    """Reserve the space of a file that is written as memory: on a disk that fills up later, a write ends the process.

    Raises OSError where the disk has no room.
    """
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as stream:
            os.posix_fallocate(stream.fileno(), 0, path.stat().st_size)


def build_features(arrays_folder: Path, out_folder: Path, progress: Callable[[int, int], None]) -> None:
    """Write the scattering features of a dataset's train_x and test_x, pixels scaled to [0, 1], to `out_folder`.

    Reads uint8 (n, channels, size, size); writes float32 (n, 81 * channels, size/4, size/4) and description.json with
    the key "features" added. Memory does not grow with n. Each file appears under its name only when it is complete.
    Calls progress(images done, images in all). Raises InputError where the arrays cannot be used.
    """
    data = load_images(arrays_folder)
    scatter = ScatterNet(data.train_x.shape[-1])
    total, done = len(data.train_x) + len(data.test_x), 0
    for name, images in (("train_x", data.train_x), ("test_x", data.test_x)):
        side = scatter.size // SUBSAMPLING
        shape = (len(images), images.shape[1] * COEFFICIENTS, side, side)
        with replacing(out_folder / f"{name}.npy") as unfinished:
            features = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.float32, shape=shape)
            _reserve(unfinished)
            for start in range(0, len(images), CHUNK_IMAGES):
                pixels = torch.from_numpy(images[start : start + CHUNK_IMAGES].astype(np.float32)) / 255
                features[start : start + CHUNK_IMAGES] = scatter(pixels).numpy()
                done += len(pixels)
                progress(done, total)
            features.flush()
    text = f"scattering, J = {SCALES}, L = {ANGLES}: {COEFFICIENTS} coefficients a channel, pixels in [0, 1]"
    description = json.dumps({**data.description, "features": text}, indent=2, sort_keys=True)
    write_atomically(out_folder / "description.json", description + "\n")
