"""Experiment trust_models: calibrate and train."""

from dpfl.experiments.trust_models.trust_training import calibrate, train

__all__ = ["calibrate", "train"]
