"""Mean gradients: plain loops of every sampling and loss, records used once, the noise's law, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from dpfl.accounting.samplers import Sampling
from dpfl.convex import accelerated_sgd, mean_gradients
from dpfl.convex.accelerated_sgd import Restart
from dpfl.convex.federated_rounds import Aggregate, Hyperparameters, Participation, Protocol, Trials
from dpfl.convex.mean_gradients import BLOCK, MeanGradients
from dpfl.convex.problems import Linear, Logistic, Square
from dpfl.randomness import generator

CLIENTS, RECORDS, ROUNDS = 3, 5, 5
PROTOCOL = Protocol(
    Square(), ROUNDS, Participation((3,)), 1, repetitions=2, sampling=Sampling.FIXED, aggregate=Aggregate.MEAN
)
POINTS = Hyperparameters(np.ones(2), np.full(2, np.inf), np.array([0.7, 0.1]), np.ones(2), np.array([0.3, 0.0]))
SAMPLINGS = [(Sampling.FULL, RECORDS), (Sampling.WITH_REPLACEMENT, 2), (Sampling.FIXED, 1)]


@pytest.fixture
def trials() -> Trials:
    """Three trials, the third with the seed of the first, of three clients with 5 records of two features."""
    rng = np.random.default_rng(3)
    size = (3, CLIENTS * RECORDS)
    return Trials((4, 9, 4), rng.normal(size=(*size, 2)), rng.choice([-1.0, 1.0], size), np.arange(4) * RECORDS)


def shares(seed: int, protocol: Protocol, round: int) -> np.ndarray:
    """1/M_r of those who take part, (repetitions, clients), as the module addresses them."""
    sizes, (block, place) = np.array(protocol.participation.sizes), divmod(round, BLOCK)
    if protocol.participation.sizes == (CLIENTS,):
        return np.full((2, CLIENTS), 1 / CLIENTS)
    source = generator(seed, "participants", round=block)
    counts = sizes[source.integers(len(sizes), size=(BLOCK, 2))][place]
    order = np.argsort(source.random((BLOCK, 2, CLIENTS))[place], axis=-1)
    return np.array([[(c in order[r, : counts[r]]) / counts[r] for c in range(CLIENTS)] for r in range(2)])


def chosen(seed: int, protocol: Protocol, round: int) -> np.ndarray:
    """The records of every client in a round, (repetitions, clients, K)."""
    block, place = divmod(round, BLOCK)
    if protocol.sampling is Sampling.FULL:
        return np.tile(np.arange(RECORDS), (2, CLIENTS, 1))
    if protocol.sampling is Sampling.FIXED:
        orders = [generator(seed, "batches", client).permutation(RECORDS) for client in range(CLIENTS)]
        return np.tile(np.array(orders)[:, round, None], (2, 1, 1))
    size = (BLOCK, 2, CLIENTS, protocol.batch_size)
    return generator(seed, "batches", round=block).integers(RECORDS, size=size)[place]


@pytest.mark.parametrize("sizes", [(3,), (2,), (1, 3)])
@pytest.mark.parametrize("loss", [Square(), Linear(), Logistic()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize(("sampling", "batch"), SAMPLINGS)
def test_gradients_equal_a_plain_loop(trials, sizes, loss, sampling, batch):
    rounds = ROUNDS if sampling is Sampling.FIXED else BLOCK + 3
    own = {"loss": loss, "sampling": sampling, "batch_size": batch, "rounds": rounds}
    protocol = replace(PROTOCOL, participation=Participation(sizes), **own)
    source = MeanGradients(trials, POINTS, protocol)
    weights = np.random.default_rng(0).normal(size=source.shape)
    for round in {0, 1, 4, rounds - 1}:
        found = source.at(weights, round)
        for trial, repetition, model in np.ndindex(3, 2, 2):
            seed, w = trials.seeds[trial], weights[trial, repetition, :, model]
            share = shares(seed, protocol, round)[repetition]
            total = POINTS.regularisation[model] * w
            for client in range(CLIENTS):
                for record in chosen(seed, protocol, round)[repetition, client]:
                    x, y = (part[trial, client * RECORDS + record] for part in (trials.x, trials.y))
                    total = total + share[client] / batch * loss.derivative(x @ w, y) * x
            block, place = divmod(round, BLOCK)
            noise = generator(seed, "noise", round=block).standard_normal((BLOCK, 2, 2))[place, repetition]
            total = total + POINTS.noise_std[model] * noise * np.sqrt(share.max())
            np.testing.assert_allclose(found[trial, repetition, :, model], total, rtol=1e-10, atol=1e-12)


def test_targets_of_one_are_targets(trials):
    """They are not looked up: the gradients are those of the same targets in another trial's company."""
    ones = replace(trials, y=np.ones_like(trials.y))
    mixed = replace(trials, y=np.where(np.arange(3)[:, None] == 1, trials.y, 1.0))
    protocol = replace(PROTOCOL, loss=Linear())
    weights = np.zeros((3, 2, 2, 2))
    first, second = (MeanGradients(each, POINTS, protocol).at(weights, 1) for each in (ones, mixed))
    np.testing.assert_allclose(first[[0, 2]], second[[0, 2]], rtol=1e-13)
    assert not np.allclose(first[1], second[1])


def test_the_noise_has_the_law_of_a_mean_of_messages(trials):
    """Its mean square is noise_std^2 E[1/M_r]: clients send independent noise, and the server takes the mean."""
    for sizes, inverse in (((3,), 1 / 3), ((1, 3), 2 / 3)):
        protocol = replace(PROTOCOL, rounds=3000, sampling=Sampling.FULL, batch_size=RECORDS, repetitions=4)
        protocol = replace(protocol, participation=Participation(sizes))
        silent = replace(trials, x=np.zeros_like(trials.x))
        source = MeanGradients(silent, replace(POINTS, regularisation=None), protocol)
        zero = np.zeros(source.shape)
        square = np.mean([source.at(zero, round)[:2] ** 2 for round in range(3000)], axis=(0, 1, 2, 3))
        np.testing.assert_allclose(square, POINTS.noise_std**2 * inverse, rtol=0.05)


def test_one_pass_shows_no_record_twice(trials):
    order = MeanGradients(trials, POINTS, PROTOCOL)._order
    assert order.shape == (3, CLIENTS, ROUNDS)
    assert np.all(np.sort(order, axis=-1) == np.arange(RECORDS))
    assert np.array_equal(order[0], order[2]) and not np.array_equal(order[0], order[1])


def test_a_replaced_record_of_one_pass_changes_one_message_only(trials):
    """Replace client 0's record of round 2: gradients at given weights differ in that round alone."""
    record = generator(4, "batches", 0).permutation(RECORDS)[2]
    x = trials.x.copy()
    x[0, record] = [10.0, -10.0]
    pairs = [MeanGradients(each, POINTS, PROTOCOL) for each in (trials, replace(trials, x=x))]
    for round in range(ROUNDS):
        ours, theirs = (source.at(np.zeros(source.shape), round)[0] for source in pairs)
        assert np.array_equal(ours, theirs) == (round != 2)


def test_runs_in_algorithm_2_and_is_deterministic(trials):
    stages = [Restart(ROUNDS, np.array([2.0, 3.0]))]
    first, second = (accelerated_sgd.run(MeanGradients(trials, POINTS, PROTOCOL), stages) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_trial_does_not_depend_on_the_others(trials):
    whole = MeanGradients(trials, POINTS, PROTOCOL)
    alone = MeanGradients(Trials((9,), trials.x[1:2], trials.y[1:2], trials.starts), POINTS, PROTOCOL)
    weights = np.random.default_rng(0).normal(size=whole.shape)
    np.testing.assert_allclose(alone.at(weights[1:2], 3), whole.at(weights, 3)[1:2], rtol=1e-13)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"batch_size": 2}, "batch_size"),
        ({"rounds": RECORDS + 1}, "rounds"),
        ({"aggregate": Aggregate.SUM}, "aggregate"),
    ],
)
def test_bad_protocols(trials, changes, named):
    with pytest.raises(ValueError, match=named):
        MeanGradients(trials, POINTS, replace(PROTOCOL, **changes))


def test_bad_points_and_trials(trials):
    for radius in (None, np.array([1.0, np.inf])):
        with pytest.raises(ValueError, match="radius"):
            MeanGradients(trials, replace(POINTS, radius=radius), PROTOCOL)
    with pytest.raises(ValueError, match="starts"):
        mean_gradients.MeanGradients(replace(trials, starts=np.array([0, 4, 9, 15])), POINTS, PROTOCOL)
