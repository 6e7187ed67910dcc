"""Experiment pnsgd: calibrate and train."""

from dpfl.experiments.pnsgd.pnsgd_training import calibrate, train

__all__ = ["calibrate", "train"]
