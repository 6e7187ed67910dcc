"""Jobs of the silo setting: their settings and noise as published, and their choices and run tables."""

import io
import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting import gaussian_dp
from dpfl.accounting.samplers import Sampling, WithReplacement
from dpfl.convex import silo_jobs
from dpfl.convex.federated_rounds import Clipping, Hyperparameters
from dpfl.convex.problems import Square, least_squares, losses
from dpfl.convex.silo_jobs import (
    EPSILON_TOLERANCE,
    ClientCounts,
    ClientMessages,
    LdpCell,
    LdpPlan,
    LdpSettings,
    NoiseRule,
    noise_multiplier,
    statement,
)
from dpfl.data.partition import Trial
from dpfl.errors import InputError
from dpfl.grid.training_job import TrainingJob

SETTINGS = {
    "participating": 3,
    "rounds": 6,
    "delta": "1/n^2",
    "noise": "advanced_composition",
    "sampling": "with_replacement",
    "clipping": "record",
    "batch_size": "published",
    "largest_epsilon": 6,
    "repetitions": 2,
    "step_exponents": {"minibatch": [-3, 1, 4], "local": [-4, 0, 3]},
    "clip_norms": [1.0, 10.0, math.inf],
    "last_iterates": 3,
    "divergence_loss": 1e4,
}
SMALL = ClientCounts(clients=3, before_split=21, training=15)
INSURANCE = {
    3: ClientCounts(clients=3, before_split=446, training=356),
    10: ClientCounts(clients=10, before_split=134, training=104),
}


def plan(records: ClientCounts = SMALL, cell=None, **changes) -> LdpPlan:
    cells = [LdpCell.of({"algorithm": "local", "epsilon": 1.0}, cell or {})]
    return LdpPlan.of(LdpSettings.of(SETTINGS, changes), cells, Square(), records)


@pytest.mark.parametrize(
    ("clients", "noise", "largest", "batch_size"),
    [
        (3, "advanced_composition", 10, 37),
        (10, "advanced_composition", 10, 12),
        (3, "tight", 10, 37),
        (3, "moments", 10, 119),
        (10, "moments", 3, 19),
    ],
)
def test_the_batch_sizes_of_the_scripts(clients, noise, largest, batch_size):
    own = plan(INSURANCE[clients], noise=noise, rounds=35, largest_epsilon=largest, participating=3)
    assert own.protocol.batch_size == batch_size
    assert plan(INSURANCE[clients], batch_size=20).protocol.batch_size == 20


def test_minibatch_releases_means_and_local_single_records():
    own = plan(INSURANCE[3], sampling="fixed_without_replacement", batch_size=20)
    minibatch, local = own.messages("minibatch"), own.messages("local")
    assert (minibatch.message_records, minibatch.releases, minibatch.sampling) == (20, 6, Sampling.FIXED)
    assert (local.message_records, local.releases, local.sampling) == (1, 120, Sampling.WITH_REPLACEMENT)
    assert own.protocol_of("minibatch").sampling is Sampling.FIXED
    assert own.protocol_of("local").sampling is Sampling.WITH_REPLACEMENT
    assert minibatch.delta == local.delta == 1 / 356**2


@pytest.mark.parametrize(("clients", "training", "before", "less"), [(3, 356, 446, 1.22), (10, 105, 134, 1.235)])
def test_the_scripts_noise_of_local_sgd_counts_records_before_the_split(clients, training, before, less):
    """The scripts' noise by hand: n, delta = 1/n^2 and K/n are those before the split; the records drawn are not."""
    counts = ClientCounts(clients, before_split=before, training=training)
    own = plan(counts, rounds=35, largest_epsilon=10, local_noise_records="before_split")
    steps, size = 35 * own.protocol.batch_size, own.protocol.batch_size
    logs = math.log(2.5 * steps * (size / before) * before**2) * math.log(2 * before**2)
    by_hand = math.sqrt(256 * steps * logs) / (before * 1.0)
    sent, counted = own.messages("local"), own.calibrated_messages("local")
    assert noise_multiplier(own.noise, counted, 1.0) == pytest.approx(by_hand, rel=1e-12)
    assert noise_multiplier(own.noise, sent, 1.0) / by_hand == pytest.approx(less, abs=0.005)
    assert own.calibrated_messages("minibatch") == own.messages("minibatch")
    stated = statement(own.noise, sent, 1.0, "rest", calibrated_for=counted)
    assert (stated.records, stated.delta) == (training, 1 / training**2)
    assert f"n = {before} records as the authors' script counts them, of which {training} train; rest" in stated.note
    assert stated.guarantee.upper > statement(own.noise, sent, 1.0, "rest", calibrated_for=sent).guarantee.upper


def test_records_before_the_split_are_for_published_noise_alone():
    with pytest.raises(InputError, match="local_noise_records"):
        plan(noise="tight", local_noise_records="before_split")


def test_the_grid_has_finite_clip_norms_and_their_noise():
    own = plan(INSURANCE[3], batch_size=20)
    private = own.points({"algorithm": "minibatch", "epsilon": 1.0}, 5.0)
    assert len(private.step_size) == 4 * 2
    np.testing.assert_allclose(private.noise_std, 5.0 * private.clip_norm / 20)
    mean = plan(INSURANCE[3], batch_size=20, clipping="mean")
    assert mean.protocol.clipping is Clipping.MEAN
    clipped_mean = mean.points({"algorithm": "minibatch", "epsilon": 1.0}, 5.0)
    np.testing.assert_allclose(clipped_mean.noise_std, 5.0 * clipped_mean.clip_norm)
    free = own.points({"algorithm": "local", "epsilon": math.inf}, 0.0)
    assert len(free.step_size) == 3 * 3 and not free.noise_std.any() and np.isinf(free.clip_norm).any()


@pytest.mark.parametrize(
    ("changes", "cell", "named"),
    [
        ({"participating": 4}, {}, "participating"),
        ({"rounds": 2.5}, {}, "rounds"),
        ({"last_iterates": 7}, {}, "last_iterates"),
        ({"repetitions": 0}, {}, "repetitions"),
        ({"largest_epsilon": 0.01}, {"epsilon": 0.001}, "largest_epsilon"),
        ({"largest_epsilon": 0}, {}, "largest_epsilon"),
        ({"delta": 1e-5}, {}, "delta"),
        ({"noise": "laplace"}, {}, "noise is 'laplace'"),
        ({"sampling": "poisson"}, {}, "sampling"),
        ({"clipping": "batch"}, {}, "clipping"),
        ({"noise": "tight", "clipping": "mean"}, {}, "clipping: record"),
        ({"batch_size": 0}, {}, "batch_size"),
        ({"batch_size": "all"}, {}, "batch_size"),
        ({"batch_size": 16, "sampling": "fixed_without_replacement"}, {}, "K = 16 .* exceed the 15"),
        ({"clip_norms": [1.0, 0.0]}, {}, "clip_norms"),
        ({"clip_norms": [math.inf]}, {}, "clip_norms"),
        ({"divergence_loss": math.nan}, {}, "divergence_loss"),
        ({}, {"epsilon": 0.0}, "epsilon"),
        ({}, {"epsilon": -1.0}, "epsilon"),
        ({}, {"epsilon": math.nan}, "epsilon"),
        ({}, {"epsilon": 11.0}, "largest_epsilon"),
        ({"largest_epsilon": 10}, {"epsilon": 8.0}, "15 training records"),
        ({}, {"algorithm": "newton"}, "algorithm"),
    ],
)
def test_settings_that_cannot_be_used_are_named(changes, cell, named):
    with pytest.raises(InputError, match=named) as raised:
        plan(cell=cell, **changes)
    assert "\n" not in str(raised.value)


def test_other_noises_have_no_limit_of_epsilon():
    assert plan(largest_epsilon=10, cell={"epsilon": 8.0}, noise="moments").records == 15


# The three noises: published formulas by hand, the tight one by another accountant; and what statements say.


MINIBATCH = ClientMessages(37, 356, 35, 1 / 356**2, Sampling.WITH_REPLACEMENT, Clipping.RECORD, batch_share=37 / 356)
LOCAL = ClientMessages(1, 356, 37 * 35, 1 / 356**2, Sampling.WITH_REPLACEMENT, Clipping.RECORD, batch_share=37 / 356)


def changed(mechanism: ClientMessages, **changes) -> ClientMessages:
    """Return a mechanism with some fields changed."""
    return ClientMessages(**{**vars(mechanism), **changes})


@pytest.mark.parametrize(("mechanism", "steps", "share"), [(MINIBATCH, 35, 37), (LOCAL, 1295, 1)])
def test_the_published_noises_are_their_formulas(mechanism, steps, share):
    n, delta, epsilon = 356, 1 / 356**2, 2.5
    advanced = 256 * steps * math.log(2.5 * steps * (37 / n) / delta) * math.log(2 / delta) / (n * epsilon) ** 2
    moments = 8 * steps * math.log(1 / delta) / (n * epsilon) ** 2
    for noise, variance in ((NoiseRule.ADVANCED_COMPOSITION, advanced), (NoiseRule.MOMENTS, moments)):
        assert noise_multiplier(noise, mechanism, epsilon) == pytest.approx(share * math.sqrt(variance), rel=1e-12)


@settings(max_examples=6, deadline=None)
@given(epsilon=st.floats(0.3, 3), records=st.integers(20, 200), releases=st.integers(1, 60), share=st.floats(0.05, 1))
def test_the_tight_noise_spends_its_epsilon_and_no_more(epsilon, records, releases, share):
    batch = max(1, round(share * records))
    mechanism = ClientMessages(batch, records, releases, 1e-5, Sampling.FIXED, Clipping.RECORD, batch_share=share)
    spent = mechanism.stated(noise_multiplier(NoiseRule.TIGHT, mechanism, epsilon)).guarantee.upper
    assert (1 - EPSILON_TOLERANCE) * epsilon <= spent <= epsilon


def test_the_tight_noise_of_full_batches_is_that_of_one_gaussian():
    """T full batches shift a unit Gaussian by 2 sqrt(T) / noise_multiplier."""
    mechanism = changed(MINIBATCH, message_records=356, sampling=Sampling.FIXED)
    for epsilon in (0.5, 3.0, 10.0):
        mean = 2 * math.sqrt(35) / noise_multiplier(NoiseRule.TIGHT, mechanism, epsilon)
        assert gaussian_dp.epsilon(1 / 356**2, mean) == pytest.approx(epsilon, rel=2 * EPSILON_TOLERANCE)


@pytest.mark.parametrize(("epsilon", "nearest"), [pytest.param(1.0, 0.85, marks=pytest.mark.slow), (7.5, 0.95)])
def test_the_tight_noise_of_local_steps_by_dp_accounting(epsilon, nearest):
    """A step draws one record of n; where all others pull the other way, dp_accounting finds nearly as much spent."""
    multiplier = noise_multiplier(NoiseRule.TIGHT, LOCAL, epsilon)
    one = privacy_loss_distribution.from_gaussian_mechanism(
        multiplier / 2, sampling_prob=1 / 356, use_connect_dots=True, value_discretization_interval=1e-3
    )
    theirs = one.self_compose(1295).get_epsilon_for_delta(1 / 356**2)
    assert nearest * epsilon < theirs <= epsilon * 1.001


def test_clipping_the_mean_costs_a_thousand_and_says_so():
    stated = statement(NoiseRule.MOMENTS, changed(MINIBATCH, message_records=65, clipping=Clipping.MEAN), 1.0, "rest")
    assert stated.guarantee.upper > 1000 and "does not protect" in stated.note
    # The noise itself is the same: only its relation to one record's share differs.
    own = noise_multiplier(NoiseRule.MOMENTS, changed(MINIBATCH, message_records=65), 1.0)
    assert own == pytest.approx(65 * stated.noise_multiplier, rel=1e-12)


def test_clipping_the_mean_of_one_record_is_clipping_the_record():
    mean = statement(NoiseRule.MOMENTS, changed(LOCAL, clipping=Clipping.MEAN), 1.0, "rest")
    assert mean == statement(NoiseRule.MOMENTS, LOCAL, 1.0, "rest")


def test_statements_say_where_the_noise_comes_from():
    tight = statement(NoiseRule.TIGHT, changed(MINIBATCH, sampling=Sampling.FIXED), 2.0, "rest")
    assert "calibrated to spend epsilon 2" in tight.note and tight.guarantee.upper == pytest.approx(2, rel=1e-3)
    published = statement(NoiseRule.ADVANCED_COMPOSITION, MINIBATCH, 2.0, "rest")
    assert "as published (advanced_composition)" in published.note and published.guarantee.upper < 0.1
    assert (published.records, published.steps, published.sampler) == (356, 35, WithReplacement(37, 356))
    free = statement(NoiseRule.TIGHT, MINIBATCH, math.inf, "rest")
    assert math.isinf(free.guarantee.upper) and free.noise_multiplier == 0.0


def test_less_noise_spends_more():
    multipliers = np.geomspace(3, 50, 5)
    spent = [changed(MINIBATCH, sampling=Sampling.FIXED).stated(each).guarantee.upper for each in multipliers]
    assert np.all(np.diff(spent) < 0)


# Choosing by training loss, stacks of any size, and run tables that do not depend on what else was trained.


DESCRIPTION = {"stand_in_for": "insurance", "note": "a toy"}
TOY = SETTINGS | {"dataset": "toy", "participating": 2, "noise": "moments", "batch_size": 5, "clip_norms": [1.0, 10.0]}
CELLS = tuple({"algorithm": name, "epsilon": e} for name in ("minibatch", "local") for e in (2.0, 6.0, math.inf))


@dataclass(frozen=True)
class Toy:
    """Three clients with 16 training and 4 test records each, drawn anew every trial."""

    plan: LdpPlan

    def trial(self, seed: int) -> Trial:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(60, 4))
        y = x @ [1.0, 2.0, 0.0, -1.0] + rng.normal(size=60)
        return Trial(x[:48], y[:48], x[48:], y[48:], np.array([0, 16, 32, 48]))

    def measures(self, trial, weights):
        return {"test_loss": losses(Square(), weights, trial.test_x, trial.test_y)}

    def references(self, trial):
        return {"spread": float(trial.train_y.std())}


def training_job(cells=CELLS, seeds=(0, 1, 5), **changes) -> TrainingJob:
    """The toy job with some settings changed."""
    return TrainingJob("lowy2021", "ldp_toy", "toy", {**TOY, **changes}, tuple(cells), tuple(seeds))


def toy(job: TrainingJob) -> Toy:
    """The task of a job."""
    counts = ClientCounts(clients=3, before_split=20, training=16)
    return Toy(LdpPlan.of(LdpSettings.of(job.settings), map(LdpCell.of, job.cells), Square(), counts))


def trained(job: TrainingJob, progress=lambda done, total: None) -> pd.DataFrame:
    """Calibrate and train."""
    task = toy(job)
    return silo_jobs.train_plan(task, job, DESCRIPTION, silo_jobs.calibrate_plan(task.plan, job.cells, ""), progress)


def test_the_run_table_has_a_row_a_run_in_order():
    rows = trained(training_job())
    keys = [(cell["algorithm"], cell["epsilon"], seed) for cell in CELLS for seed in (0, 1, 5)]
    assert list(zip(rows["algorithm"], rows["epsilon"], rows["seed"], strict=True)) == keys
    first = rows.iloc[0]
    assert (first["experiment"], first["stand_in_for"], first["data_note"]) == ("ldp_toy", "insurance", "a toy")
    assert set(rows["status"]) == {"finished"} and rows["spread"].nunique() == 3
    private = rows[np.isfinite(rows["epsilon"])]
    assert (private["privacy_clip_norm"] == private["clip_norm"]).all() and (private["noise_multiplier"] > 0).all()


def test_a_subset_of_cells_or_seeds_gives_the_same_rows():
    whole = trained(training_job())
    for cells, seeds in ((CELLS[1:2], (0, 1, 5)), (CELLS[3:], (5,)), (CELLS[::-1], (1, 0))):
        part = trained(training_job(cells, seeds))
        keys = ["algorithm", "epsilon", "seed"]
        same = part[keys].merge(whole, on=keys, how="left")[list(part.columns)]
        pd.testing.assert_frame_equal(part, same, check_exact=True)


def test_small_stacks_give_the_same_rows(monkeypatch):
    told: list[tuple[int, int]] = []
    whole = trained(training_job())
    monkeypatch.setattr(silo_jobs, "STACK_BYTES", 1)
    parts = trained(training_job(), progress=lambda done, total: told.append((done, total)))
    pd.testing.assert_frame_equal(whole, parts, check_exact=True)
    assert told == [(done, 36) for done in range(1, 37)]  # 2 algorithms, 3 trials, 6 rounds


def test_a_calibration_read_back_from_its_file_gives_the_same_rows():
    job = training_job()
    calibration = silo_jobs.calibrate_plan(toy(job).plan, job.cells, "")
    read = pd.read_csv(io.StringIO(calibration.to_csv(index=False)), keep_default_na=False, na_values=["nan", ""])
    first, second = (
        silo_jobs.train_plan(toy(job), job, DESCRIPTION, each, lambda done, total: None).to_csv(index=False)
        for each in (calibration, read)
    )
    assert first == second


def test_a_point_with_a_diverged_repetition_is_recorded_and_never_chosen():
    """Of three points the first has the least mean but for one repetition that is no number."""
    task = toy(training_job())
    trial = task.trial(0)
    best = least_squares(trial.train_x, trial.train_y)
    weights = np.tile(best[:, None], (2, 1, 3))
    weights[:, :, 1] += 0.1
    weights[:, :, 2] += 1e6
    points = Hyperparameters(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, np.inf]), np.zeros(3))
    assert silo_jobs.choose(task, trial, points, weights)["step_size"] == 1.0
    for poison in (np.nan, np.inf, 1e5):
        weights[1, 0, 0] = poison
        chosen = silo_jobs.choose(task, trial, points, weights)
        assert (chosen["status"], chosen["step_size"], chosen["clip_norm"]) == ("finished", 2.0, 5.0)
        assert chosen["diverged_share"] == 0.5
    lost = silo_jobs.choose(task, trial, points, weights[:, :, 2:].repeat(2, axis=2))
    assert lost["status"] == "diverged" and lost["diverged_share"] == 1.0
    assert all(math.isnan(lost[name]) for name in ("train_loss", "test_loss", "step_size", "clip_norm"))


def test_only_training_records_decide():
    task = toy(training_job())
    trial = task.trial(0)
    rng = np.random.default_rng(0)
    weights, points = rng.normal(size=(2, 4, 6)), Hyperparameters(np.arange(1.0, 7.0), np.ones(6), np.ones(6))
    other = replace(trial, test_y=trial.test_y * -7.0)
    one, two = (silo_jobs.choose(task, each, points, weights) for each in (trial, other))
    assert one["step_size"] == two["step_size"] and one["test_loss"] != two["test_loss"]


def test_steps_that_all_diverge_are_a_row_and_no_crash():
    rows = trained(training_job(step_exponents={"minibatch": [30, 40, 2], "local": [30, 40, 2]}))
    assert set(rows["status"]) == {"diverged"} and rows["test_loss"].isna().all()
    assert (rows["diverged_share"] == 1.0).all()
