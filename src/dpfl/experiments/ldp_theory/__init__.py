"""Experiment ldp_theory: calibrate and train."""

from dpfl.experiments.ldp_theory.theory_training import calibrate, train

__all__ = ["calibrate", "train"]
