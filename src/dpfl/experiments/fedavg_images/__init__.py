"""Experiment fedavg_images: calibrate and train."""

from dpfl.experiments.fedavg_images.fedavg_noise import calibrate
from dpfl.experiments.fedavg_images.image_training import train

__all__ = ["calibrate", "train"]
