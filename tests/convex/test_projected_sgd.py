"""Projected noisy steps against one plain loop a run and closed forms; their stops and batches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit

from dpfl.accounting.contraction.pnsgd import Law
from dpfl.accounting.samplers import Sampling
from dpfl.convex.pnsgd import ordered_records
from dpfl.convex.problems import FactoredRecords, Logistic, Square
from dpfl.convex.projected_sgd import (
    BLOCK,
    ProjectedHyperparameters,
    UserSampling,
    base_noise,
    batches,
    models_at,
    projected_sgd,
    stratified_stops,
)

FALSE_ALARM = 1e-6
"""Chance that a correct sampler fails one of the statistical tests below (their seeds are fixed)."""
SEEDS = (3, 8)
RNG = np.random.default_rng(2)
X = RNG.normal(size=(40, 3)) / 2
Y = np.sign(RNG.normal(size=40))
RECORDS = FactoredRecords.of(X, Y)


def points(rounds: int = 40) -> ProjectedHyperparameters:
    """Four models: noisy in a tight ball, noisy, silent with long steps, and one that never reaches its ball."""
    t = np.arange(1, rounds + 1)
    return ProjectedHyperparameters(
        step_size=np.stack([1 / (0.3 * t), np.full(rounds, 0.4), 5 / np.sqrt(t), np.full(rounds, 0.01)]),
        noise_std=np.array([0.8, 0.3, 0.0, 0.1]),
        radius=np.array([0.5, 2.0, 1.0, np.inf]),
        regularisation=np.array([0.3, 0.1, 0.05, 0.2]),
    )


def run(
    source, chosen: ProjectedHyperparameters, law: Law = Law.GAUSSIAN, clip_norm: float = 0.7, loss=None
) -> np.ndarray:
    """Every model after every round, (rounds, seeds, features, models)."""
    models = projected_sgd(loss or Logistic(), source, SEEDS, chosen, clip_norm=clip_norm, law=law)
    return np.stack([weights.copy() for weights in models])


@pytest.mark.parametrize("law", Law)
def test_the_stack_is_the_plain_loop(law):
    chosen = points()
    source = batches(RECORDS, UserSampling.FRESH, SEEDS, 40, 4)
    ours = run(source, chosen, law)
    for place, seed in enumerate(SEEDS):
        for model in range(4):
            w = np.zeros(3)
            for t in range(40):
                block = source(t // BLOCK)
                x = block.direction[place, t % BLOCK] * block.norms[place, t % BLOCK, :, None]
                y = block.targets[place, t % BLOCK]
                total = np.zeros(3)
                for record, target in zip(x, y, strict=True):
                    gradient = -target * expit(-target * record @ w) * record
                    total += gradient * min(1.0, 0.7 / np.linalg.norm(gradient))
                noise = chosen.noise_std[model] * base_noise((seed,), t // BLOCK, 3, law)[0, t % BLOCK]
                step = total / 4 + chosen.regularisation[model] * w + noise
                w = w - chosen.step_size[model, t] * step
                w = w * min(1.0, chosen.radius[model] / np.linalg.norm(w))
                np.testing.assert_allclose(ours[t, place, :, model], w, rtol=0, atol=1e-12)


def test_noiseless_steps_1_over_t_give_the_mean_of_the_records():
    """Loss (w - y)^2/2: w_T is the mean of the first T targets, whatever their order."""
    targets = np.random.default_rng(4).normal(size=50)
    records = FactoredRecords.of(np.ones((50, 1)), targets)
    orders = np.stack([np.random.default_rng(seed).permutation(50) for seed in SEEDS])
    silent = ProjectedHyperparameters(
        np.tile(1 / np.arange(1.0, 51.0), (2, 1)), np.zeros(2), np.full(2, 9.0), np.zeros(2)
    )
    ours = run(ordered_records(records, orders), silent, clip_norm=np.inf, loss=Square())
    for place, order in enumerate(orders):
        means = np.cumsum(targets[order]) / np.arange(1, 51)
        np.testing.assert_allclose(ours[:, place, 0, 0], means, atol=1e-12)


@pytest.mark.parametrize(("law", "reference"), [(Law.GAUSSIAN, stats.norm), (Law.LAPLACE, stats.laplace)])
def test_the_noise_has_its_law(law, reference):
    draws = np.concatenate([base_noise(range(20), block, 7, law).ravel() for block in range(3)])
    assert stats.kstest(draws, reference.cdf).pvalue > FALSE_ALARM
    assert stats.kstest(draws, reference(scale=1.1).cdf).pvalue < 1e-3
    blocks = base_noise((0,), 0, 50, law)[0]
    assert abs(np.corrcoef(blocks[0], blocks[1])[0, 1]) < 0.7


def test_a_released_model_has_the_variance_of_its_noise():
    """Records without direction leave noise alone: w_T = -eta sum of T noises of scale s, variance T (eta s)^2."""
    records = FactoredRecords.of(np.zeros((1, 60)), np.ones(1))
    seeds = tuple(range(40))
    noisy = ProjectedHyperparameters(np.full((2, 30), 0.5), np.full(2, 0.6), np.full(2, np.inf), np.zeros(2))
    source = ordered_records(records, np.zeros((40, 30), dtype=np.int64))
    *_, last = projected_sgd(Logistic(), source, seeds, noisy, clip_norm=1.0)
    values = last[..., 0].ravel() / np.sqrt(30 * (0.5 * 0.6) ** 2)
    assert stats.kstest(values, stats.norm.cdf).pvalue > FALSE_ALARM


def test_no_model_leaves_its_ball():
    ours = run(batches(RECORDS, UserSampling.ONE_PASS, SEEDS, 40, 1), points())
    norms = np.linalg.norm(ours, axis=2)
    assert (norms <= points().radius * (1 + 1e-12)).all()
    assert np.isclose(norms[:, :, 0], 0.5).any()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 39), st.integers(0, 10_000), st.floats(0.05, 3.0))
def test_replacing_a_record_moves_a_step_by_at_most_2_clip_norm_over_m(place, seed, clip_norm):
    rng = np.random.default_rng(seed)
    x, y = X.copy(), Y.copy()
    x[place], y[place] = 50 * rng.normal(size=3), -y[place]
    order = np.arange(40)[None, None, :]
    free = ProjectedHyperparameters(np.ones((2, 1)), np.zeros(2), np.full(2, np.inf), np.zeros(2))
    first, second = (
        next(iter(projected_sgd(Logistic(), lambda _, r=r: r[(order,)], (0,), free, clip_norm=clip_norm)))
        for r in (RECORDS, FactoredRecords.of(x, y))
    )
    assert np.linalg.norm(first - second, axis=1).max() <= 2 * clip_norm / 40 * (1 + 1e-12)


def test_models_do_not_see_each_other_and_repeat_bit_for_bit():
    chosen = points()
    source = batches(RECORDS, UserSampling.NEW_USERS, SEEDS, 160, 4)
    ours = run(source, chosen)
    two = ProjectedHyperparameters(*(part[1:3] for part in vars(chosen).values()))
    assert np.array_equal(run(source, two), ours[..., 1:3])
    assert np.array_equal(run(source, chosen), ours)


def test_a_short_run_is_the_beginning_of_a_long_one():
    source = batches(RECORDS, UserSampling.NEW_USERS, SEEDS, 1, 4)
    assert np.array_equal(run(source, points(70))[:50, :, :, 1], run(source, points(50))[:, :, :, 1])


def test_released_models_are_those_of_their_rounds():
    source = batches(RECORDS, UserSampling.FRESH, SEEDS, 40, 2)
    every = run(source, points())
    stops = np.random.default_rng(1).integers(1, 31, size=(2, 4, 3))
    ticks = []
    models = projected_sgd(Logistic(), source, SEEDS, points(), clip_norm=0.7)
    ours = models_at(models, stops, lambda: ticks.append(1))
    assert len(ticks) == stops.max()
    for seed, model, stop in np.ndindex(stops.shape):
        assert np.array_equal(ours[seed, stop, :, model], every[stops[seed, model, stop] - 1, seed, :, model])


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


THREE_SEEDS = (0, 5, 9)
NUMBERED = FactoredRecords.of(np.arange(1.0, 61.0)[:, None], np.zeros(60))


def drawn(draw: UserSampling, users: int, size: int, blocks: int = 1) -> np.ndarray:
    """Which records (0..59) the rounds read, (seeds, rounds, batch)."""
    source = batches(NUMBERED, draw, THREE_SEEDS, users, size)
    return np.concatenate([source(block).norms for block in range(blocks)], axis=1).astype(int) - 1


def test_one_pass_takes_every_user_once():
    rounds = drawn(UserSampling.ONE_PASS, 48, 2)[:, :24]
    for own in rounds:
        assert sorted(own.ravel()) == list(range(48))
    assert not np.array_equal(rounds[0], rounds[1])


def test_fresh_batches_hold_no_user_twice_and_favour_none():
    rounds = drawn(UserSampling.FRESH, 30, 6, blocks=40)
    assert all(len(set(batch)) == 6 for batch in rounds.reshape(-1, 6))
    counts = np.bincount(rounds.ravel(), minlength=30)
    # Without replacement counts vary less than multinomial ones: the test errs on the quiet side.
    assert stats.chisquare(counts).pvalue > FALSE_ALARM
    assert set(rounds.ravel()) == set(range(30))


@pytest.mark.parametrize(("draw", "population"), [(UserSampling.NEW_USERS, 60), (UserSampling.WITH_REPLACEMENT, 30)])
def test_slots_are_uniform_and_independent(draw, population):
    rounds = drawn(draw, 30, 4, blocks=40)
    assert stats.chisquare(np.bincount(rounds.ravel(), minlength=population)).pvalue > FALSE_ALARM
    pairs = rounds[..., 0] * population + rounds[..., 1]
    repeats = (rounds[..., 0] == rounds[..., 1]).sum()
    assert stats.binomtest(int(repeats), pairs.size, 1 / population).pvalue > FALSE_ALARM


def test_a_block_does_not_depend_on_those_before():
    source, again = (batches(NUMBERED, UserSampling.FRESH, THREE_SEEDS, 60, 3) for _ in range(2))
    source(0)
    assert np.array_equal(source(4).norms, again(4).norms)
    assert source(4).direction.shape == (3, BLOCK, 3, 1)


def test_samplings_and_participation():
    assert [draw.sampling for draw in UserSampling] == [
        Sampling.SHUFFLED, Sampling.SHUFFLED, Sampling.FIXED, Sampling.WITH_REPLACEMENT,
    ]  # fmt: skip
    assert [draw.once for draw in UserSampling] == [True, True, False, False]
