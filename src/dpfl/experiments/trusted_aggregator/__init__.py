"""Experiment trusted_aggregator: calibrate and train."""

from dpfl.experiments.trusted_aggregator.aggregator_training import calibrate, train

__all__ = ["calibrate", "train"]
