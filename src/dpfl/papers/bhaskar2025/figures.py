"""The figures: accuracy against the split, candidates, initialisation, distances, samplers."""

from __future__ import annotations

from dpfl.papers.bhaskar2025.candidate_figure import draw_candidates
from dpfl.papers.bhaskar2025.distance_figure import draw_distances
from dpfl.papers.bhaskar2025.distances import distance_cells
from dpfl.papers.bhaskar2025.identification import candidate_cells
from dpfl.papers.bhaskar2025.initialisation import initialisation_cells
from dpfl.papers.bhaskar2025.initialisation_figure import draw_initialisation
from dpfl.papers.bhaskar2025.sampling_figure import draw_sampling
from dpfl.papers.bhaskar2025.sampling_study import sampling_cells
from dpfl.papers.bhaskar2025.splits_figure import draw_splits, split_cells
from dpfl.reporting.figures import FigureRecipe

FIGURES = {
    "splits": FigureRecipe(split_cells, draw_splits),
    "identification": FigureRecipe(candidate_cells, draw_candidates),
    "initialisation": FigureRecipe(initialisation_cells, draw_initialisation),
    "distances": FigureRecipe(distance_cells, draw_distances),
    "sampling": FigureRecipe(sampling_cells, draw_sampling),
}
