"""Settings that cannot be used are named; K, protocols and grids are those of the authors' scripts."""

import math

import numpy as np
import pytest

from dpfl.accounting.samplers import Sampling
from dpfl.convex.federated_rounds import Clipping
from dpfl.convex.problems import Square
from dpfl.convex.silo_jobs import ClientCounts, LdpCell, LdpPlan, LdpSettings, noise_multiplier, statement
from dpfl.errors import InputError

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
