"""The figures that the chapter's statements call for; it prints none itself."""

from __future__ import annotations

from dpfl.papers.vandijk2023 import epoch_figures, sampling_figures
from dpfl.reporting.figures import FigureRecipe

FIGURES = {
    "tradeoff": FigureRecipe(sampling_figures.tradeoff_data, sampling_figures.draw_tradeoff),
    "epochs_not_rounds": FigureRecipe(epoch_figures.epochs_data, epoch_figures.draw_epochs),
    "group_privacy": FigureRecipe(epoch_figures.group_data, epoch_figures.draw_groups),
    "fixed_against_poisson": FigureRecipe(sampling_figures.sampler_data, sampling_figures.draw_samplers),
    "last_epoch_noise": FigureRecipe(epoch_figures.last_epoch_data, epoch_figures.draw_last_epoch),
}
