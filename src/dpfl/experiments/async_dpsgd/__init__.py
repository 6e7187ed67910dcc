"""Experiment async_dpsgd: calibrate and train."""

from dpfl.experiments.async_dpsgd.async_training import calibrate, train

__all__ = ["calibrate", "train"]
