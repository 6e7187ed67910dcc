from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.asynchronous.events import EndRound, EvaluateEvent, GradientEvent, Interrupt, Network, ServerStep, simulate
from dpfl.errors import InputError
from dpfl.randomness import generator


def run(network=None, clients=3, rounds=6, epochs=2, seed=0):
    return simulate(network or Network(), clients=clients, lengths=[Fraction(1)] * rounds, epochs=epochs, seed=seed)


def test_without_delay_or_loss_every_round_is_synchronous():
    expected = []
    for number in range(4):
        for client in range(2):
            expected += [GradientEvent(client, number, 0.0, 1.0), EndRound(client, number, True)]
        expected.append(ServerStep(((0, number), (1, number))))
        expected += [EvaluateEvent()] if number % 2 else []
        expected += [Interrupt(client, number + 1) for client in range(2)] if number < 3 else []
    assert list(run(clients=2, rounds=4).operations) == expected


EQUAL, FALLING = [Fraction(1)] * 12, [Fraction(7, 3)] * 2 + [Fraction(1)] * 4 + [Fraction(1, 7)] * 8
networks = st.builds(
    Network,
    speed_spread=st.sampled_from([1.0, 1.7, 9.0]),
    delay=st.sampled_from([0.0, 0.3, 2.0, 7.5]),
    jitter=st.sampled_from([0.0, 0.5, 1.0]),
    update_loss=st.sampled_from([0.0, 0.3]),
    broadcast_loss=st.sampled_from([0.0, 0.6]),
    window=st.sampled_from([0.25, 1.0, 3.3]),
    participation=st.sampled_from([1.0, 0.6, 0.2]),
    max_staleness=st.sampled_from([None, 1, 3]),
)


@settings(max_examples=50, deadline=None)
@given(network=networks, clients=st.integers(1, 4), seed=st.integers(0, 3), lengths=st.sampled_from([EQUAL, FALLING]))
def test_what_happens_is_consistent(network, clients, seed, lengths):
    rounds, epochs = len(lengths), 3
    try:
        program = simulate(network, clients=clients, lengths=lengths, epochs=epochs, seed=seed)
    except InputError as error:
        assert "never reports" in str(error) and network.update_loss > 0
        return
    assert program == simulate(network, clients=clients, lengths=lengths, epochs=epochs, seed=seed)
    covered, ended, added = {}, [], []
    held, version = [0] * clients, 0
    for operation in program.operations:
        match operation:
            case GradientEvent(client, number, start, stop):
                assert covered.get((client, number), 0.0) == start < stop <= 1
                covered[client, number] = stop
            case EndRound(client, number, delivered):
                assert covered[client, number] == 1.0
                ended.append((client, number, delivered))
            case ServerStep(updates):
                version += 1
                added += updates
            case Interrupt(client, new):
                assert held[client] < new <= version
                held[client] = new
    assert sorted(ended)[::1] == sorted(set(ended)) and len(ended) == clients * rounds
    for client in range(clients):
        assert [number for own, number, _ in ended if own == client] == list(range(rounds))
    assert sorted(added) == sorted((client, number) for client, number, delivered in ended if delivered)
    assert sum(isinstance(each, EvaluateEvent) for each in program.operations) == epochs
    assert program.updates_lost_pct == pytest.approx(100 * (1 - len(added) / len(ended)))
    assert isinstance(program.operations[-1], EvaluateEvent)


def test_a_message_meets_the_same_fate_in_every_network():
    lost = {
        loss: {(each.client, each.round) for each in run(Network(update_loss=loss), rounds=40).operations
               if isinstance(each, EndRound) and not each.delivered}
        for loss in (0.2, 0.5)
    }  # fmt: skip
    assert lost[0.2] < lost[0.5]


def test_loss_comes_at_its_rate():
    # 3000 messages, each lost with probability 0.3: beyond 5 deviations once in 1.7 million times.
    program = run(Network(update_loss=0.3), clients=3, rounds=1000)
    assert abs(program.updates_lost_pct / 100 - 0.3) < 5 * np.sqrt(0.21 / 3000)


def test_constant_latency_arrives_when_it_should():
    steps = [each for each in run(Network(delay=2.5), clients=1, rounds=3).operations if isinstance(each, ServerStep)]
    assert steps == [ServerStep(((0, number),)) for number in range(3)]
    # The last update leaves at 3, arrives at 5.5 and is added when the window closes at 6.
    assert run(Network(delay=2.5), clients=1, rounds=3).simulated_rounds == 6.0


def test_a_model_that_arrives_in_a_round_splits_its_batch():
    # Sent at 1, the update is added at once and the model is back at 1.5, in the middle of the second round.
    program = run(Network(delay=0.25, window=0.25), clients=1, rounds=2, epochs=1)
    assert program.operations[:6] == (
        GradientEvent(0, 0, 0.0, 1.0),
        EndRound(0, 0, True),
        ServerStep(((0, 0),)),
        GradientEvent(0, 1, 0.0, 0.5),
        Interrupt(0, 1),
        GradientEvent(0, 1, 0.5, 1.0),
    )
    assert program.interrupted_pct == 50.0


def test_messages_overtake_each_other_only_with_jitter():
    def order(jitter):
        program = run(Network(delay=6.0, jitter=jitter), clients=1, rounds=30)
        return [number for each in program.operations if isinstance(each, ServerStep) for _, number in each.updates]

    assert order(0.0) == sorted(order(0.0))
    assert order(1.0) != sorted(order(1.0)) and sorted(order(1.0)) == list(range(30))


def test_the_guard_makes_clients_wait_for_the_server():
    silent = run(Network(broadcast_loss=0.9), rounds=60)
    guarded = run(Network(broadcast_loss=0.9, max_staleness=2), rounds=60)
    assert silent.staleness_rounds > 2 > guarded.staleness_rounds
    assert guarded.simulated_rounds > silent.simulated_rounds == 60


@pytest.mark.parametrize("limit", [1, 3])
def test_no_client_starts_a_round_with_a_model_older_than_the_guard_allows(limit):
    network = Network(broadcast_loss=0.9, max_staleness=limit)
    for guarded, oldest in ((network, limit - 1), (Network(broadcast_loss=0.9), 20)):
        silent, ages = [0, 0], []
        started: set[tuple[int, int]] = set()
        for operation in run(guarded, clients=2, rounds=60).operations:
            match operation:
                case Interrupt(client, _):
                    silent[client] = 0
                case GradientEvent(client, number, _, _) if (client, number) not in started:
                    started.add((client, number))
                    ages.append(silent[client])
                case EndRound(client):
                    silent[client] += 1
        assert (max(ages) == oldest) if guarded is network else (max(ages) > oldest)


def test_a_round_lasts_as_long_as_its_batch_is_large():
    lengths = [Fraction(1, 2)] * 4 + [Fraction(2)]
    program = simulate(Network(window=0.5), clients=1, lengths=lengths, epochs=2, seed=0)
    assert program.simulated_rounds == 4.0
    kinds = [type(each) for each in program.operations if isinstance(each, ServerStep | EvaluateEvent)]
    assert kinds == [ServerStep] * 4 + [EvaluateEvent, ServerStep, EvaluateEvent]
    # The model of the last short round is back as the long one starts: constant latency of a quarter of it.
    late = simulate(Network(window=0.5, delay=0.25), clients=1, lengths=lengths, epochs=2, seed=0)
    shares = [each.stop for each in late.operations if isinstance(each, GradientEvent) and each.round == 4]
    assert shares[-1] == 1.0 and all(0 < share < 1 for share in shares[:-1]) and len(shares) > 1


def test_speeds_span_the_spread_and_slow_clients_take_longer():
    speeds = Network(speed_spread=9.0).speeds(3)
    assert speeds == pytest.approx([1 / 3, 1.0, 3.0])
    assert run(Network(speed_spread=9.0), rounds=6).simulated_rounds == pytest.approx(18, abs=1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("speed_spread", 0.0), ("speed_spread", 0.5), ("delay", -1.0), ("delay", float("nan")), ("jitter", 1.5),
        ("update_loss", -0.1), ("update_loss", 1.0), ("broadcast_loss", 2.0), ("window", 0.0), ("max_staleness", 0),
    ],
)  # fmt: skip
def test_a_network_that_cannot_be_is_one_line(field, value):
    with pytest.raises(InputError, match=f"^{field}: [^\n]*$"):
        Network(**{field: value})


def test_a_client_that_never_reports_is_named():
    with pytest.raises(InputError, match=r"client \d never reports: all 2 of its updates were lost"):
        run(Network(update_loss=0.97), rounds=2, epochs=1)


def test_waiting_for_broadcasts_that_never_come_is_refused():
    with pytest.raises(InputError, match="broadcast_loss"):
        Network(broadcast_loss=1.0, max_staleness=3)


def test_the_server_asks_a_fresh_subset_of_the_clients_in_every_window():
    program = run(Network(participation=0.5), clients=6, rounds=40, epochs=4)
    steps = [operation.updates for operation in program.operations if isinstance(operation, ServerStep)]
    assert all(len(updates) == 3 for updates in steps[:60])  # until the first client is done
    asked = np.array([[client in dict(updates) for client in range(6)] for updates in steps[:60]])
    assert len({tuple(row) for row in asked}) > 10
    assert asked.mean(0) == pytest.approx(0.5, abs=4.5 * np.sqrt(0.25 / 60))  # false-alarm rate 4e-5
    assert sum(len(updates) for updates in steps) == 6 * 40  # everybody makes all rounds, later
    assert program.simulated_rounds >= 80


class Counting:
    """Models whose distance is the number of rounds since the last model came in."""

    def __init__(self, clients):
        self.rounds = [0] * clients

    def carry_out(self, operation):
        if isinstance(operation, EndRound):
            self.rounds[operation.client] += 1
        if isinstance(operation, Interrupt):
            self.rounds[operation.client] = 0

    def distance(self, client):
        return self.rounds[client]


@pytest.mark.parametrize("loss", [0.5, 0.9])
def test_a_client_too_far_from_the_last_model_waits_for_the_next(loss):
    """If a round is a unit of distance, the guard on distance is the guard on silence."""
    common = {"broadcast_loss": loss, "jitter": 1.0}
    silent = run(Network(**common, max_staleness=3), rounds=30)
    far = simulate(
        Network(**common, max_distance=2.5), clients=3, lengths=[Fraction(1)] * 30, epochs=2, seed=0,
        models=Counting(3),
    )  # fmt: skip
    free = run(Network(**common), rounds=30)
    assert far.operations == silent.operations != free.operations


def test_the_same_model_again_frees_a_client_that_waits():
    """All updates are late, so the server has nothing new: its old model ends the wait, in place of the client's."""
    network = Network(delay=20.0, max_distance=0.5)
    program = simulate(network, clients=2, lengths=[Fraction(1)] * 3, epochs=1, seed=0, models=Counting(2))
    assert [each.version for each in program.operations if isinstance(each, Interrupt)][:2] == [0, 0]


def test_models_are_asked_only_where_the_order_depends_on_them():
    with pytest.raises(ValueError, match="models"):
        run(Network(max_distance=1.0))


@pytest.mark.parametrize(
    "fields",
    [
        {"speed_spread": 1.0}, {"speed_spread": 1e6}, {"delay": 1e6}, {"jitter": 1.0}, {"broadcast_loss": 1.0},
        {"window": 1e-3}, {"window": 1e6}, {"participation": 1e-6}, {"participation": 1.0}, {"max_staleness": 1},
        {"max_distance": 1e-300}, {"update_loss": 0.999},
    ],
)  # fmt: skip
def test_the_ends_of_what_a_network_can_be_are_taken(fields):
    assert all(getattr(Network(**fields), name) == value for name, value in fields.items())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("speed_spread", 1.01e6), ("delay", 1.01e6), ("window", 0.99e-3), ("window", 1.01e6), ("participation", 0.9e-6),
        ("participation", 1.01), ("max_distance", 0.0), ("max_distance", float("inf")), ("max_distance", float("nan")),
    ],
)  # fmt: skip
def test_a_network_just_beyond_the_ends_is_refused(field, value):
    with pytest.raises(InputError, match=f"^{field}: "):
        Network(**{field: value})


def test_a_message_takes_its_latency_with_its_share_of_jitter():
    draw = generator(0, "messages", 0, 0, 0)  # client 0's update 0
    draw.random()  # whether it is lost
    wait = draw.standard_exponential()
    network = Network(delay=2.0, jitter=0.25, window=0.001)
    arrived = 1 + 2 * (0.75 + 0.25 * wait)
    assert arrived <= run(network, clients=1, rounds=1, epochs=1).simulated_rounds <= arrived + 0.0011


def test_staleness_is_the_mean_age_of_the_models_that_rounds_start_from():
    assert run(Network(broadcast_loss=1.0), clients=2, rounds=7, epochs=1).staleness_rounds == 3  # 0, 1, ..., 6
    assert run(clients=2, rounds=7).staleness_rounds == 0


@pytest.mark.parametrize(("share", "asked"), [(0.05, 1), (0.3, 2), (0.5, 4), (0.9, 6), (0.95, 7)])
def test_the_server_asks_the_nearest_number_of_clients_and_at_least_one(share, asked):
    program = run(Network(participation=share), clients=7, rounds=2, epochs=1)
    first = next(each for each in program.operations if isinstance(each, ServerStep))
    assert len(first.updates) == asked  # 3.5 rounds to 4, as Python rounds
