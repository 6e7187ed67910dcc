import numpy as np
from scipy import stats

from dpfl.convex.projected_sgd import stratified_stops

FALSE_ALARM = 1e-6


def test_draws_together_have_the_uniform_law():
    draws = np.stack([stratified_stops(seed, 3, 12, 5) for seed in range(2000)])
    assert draws.min() == 3 and draws.max() == 12
    # Strata make the counts less scattered than independent draws would: the test errs on the quiet side.
    assert stats.chisquare(np.bincount(draws.ravel() - 3)).pvalue > FALSE_ALARM


def test_one_draw_is_uniform():
    draws = np.array([stratified_stops(seed, 1, 8, 1)[0] for seed in range(4000)])
    assert stats.chisquare(np.bincount(draws - 1)).pvalue > FALSE_ALARM


def test_each_stratum_has_its_draw():
    for seed in range(50):
        draws = stratified_stops(seed, 1, 100, 4)
        assert [(draw - 1) // 25 for draw in draws] == [0, 1, 2, 3]


def test_a_run_that_cannot_stop_early_has_one_stop():
    assert stratified_stops(0, 7, 7, 5).tolist() == [7]
