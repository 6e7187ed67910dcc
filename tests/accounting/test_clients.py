"""A ledger for each client: against closed forms, exact enumeration of cohorts, dp_accounting, and damaged files."""

import itertools
import json
import math
import os

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from dpfl.accounting import (
    ClientAccountant,
    ClientRound,
    FixedBatches,
    FullBatch,
    Phase,
    Poisson,
    gaussian_dp,
    guarantee,
)
from dpfl.accounting.renyi import divergence, filter_budget, filter_order
from dpfl.errors import InputError

DELTA = 1e-5
NAMES = ("ann", "bob", "cy", "dee")


def test_named_cohorts_are_gaussian_for_those_who_are_in_them():
    accountant = ClientAccountant(NAMES)
    accountant.compose(ClientRound(FullBatch(), 3.0, cohort=("ann", "bob")), count=5)
    accountant.compose(ClientRound(FullBatch(), 2.0, cohort=("bob", "cy")))
    mus = {"ann": math.sqrt(5) / 3, "bob": math.sqrt(5 / 9 + 1 / 4), "cy": 1 / 2}
    for name, mu in mus.items():
        found = accountant.guarantee(name, delta=DELTA)
        assert found.lower == pytest.approx(float(gaussian_dp.epsilon(DELTA, mu)), rel=1e-9)
        assert found.upper == pytest.approx(found.lower, rel=1e-9)
    assert accountant.guarantee("dee", delta=DELTA).upper == 0.0 and accountant.ledger("dee") == ()
    with pytest.raises(ValueError, match=r"^client must be one of the 4 clients, got 'eve'$"):
        accountant.guarantee("eve", delta=DELTA)


@pytest.mark.parametrize(("colluding", "left"), [(0, 3), (2, 1)])
def test_shares_that_drop_out_or_are_known_hide_nobody(colluding, left):
    accountant = ClientAccountant(NAMES, neighbouring="replace_one")
    accountant.compose(ClientRound(FullBatch(), 4.0, NAMES[:3], distributed=True, dropped=2, colluding=colluding))
    mu = 2 / (4.0 * math.sqrt(left / 5))  # of five shares, each of variance 16 / 5
    assert accountant.guarantee("ann", delta=DELTA).upper == pytest.approx(float(gaussian_dp.epsilon(DELTA, mu)))


def test_without_a_named_cohort_those_who_drop_out_are_of_it_and_are_charged():
    unnamed, named = ClientAccountant(NAMES), ClientAccountant(NAMES)
    unnamed.compose(ClientRound(FullBatch(), 8.0, distributed=True, dropped=2))
    named.compose(ClientRound(FullBatch(), 8.0, cohort=NAMES[:2], distributed=True, dropped=2))
    mu = 1 / (8.0 * math.sqrt(2 / 4))  # of four shares, two came
    for name in NAMES:
        assert unnamed.guarantee(name, delta=DELTA).upper == pytest.approx(float(gaussian_dp.epsilon(DELTA, mu)))
    assert unnamed.guarantee("ann", delta=DELTA) == named.guarantee("ann", delta=DELTA)


def test_what_is_left_of_a_drawn_cohort_is_drawn_from_all_given_its_number():
    """Every cohort of 3 out of 4, every way of dropping out: who is left is uniform given how many are."""
    chances = {}
    for cohort in itertools.combinations(range(4), 3):
        for came in itertools.product((0, 1), repeat=3):
            left = tuple(each for each, there in zip(cohort, came, strict=True) if there)
            chances[left] = chances.get(left, 0) + 0.7 ** sum(came) * 0.3 ** (3 - sum(came)) / 4
    accountant = ClientAccountant(NAMES)
    for gone in (1, 2):
        accountant.compose(ClientRound(FixedBatches(3, 4), 2.0, distributed=True, dropped=gone))
        of_this_size = [chances[left] for left in itertools.combinations(range(4), 3 - gone)]
        assert np.ptp(of_this_size) < 1e-15
        sampler, noise, steps = accountant.ledger("ann")[-1]
        assert (sampler, steps) == (FixedBatches(3 - gone, 4), 1)
        assert noise == pytest.approx(2.0 * math.sqrt((3 - gone) / 3))


def test_a_round_with_shares_and_drop_outs_against_the_exact_mixture():
    """Others send -1, the client +1 or 0: the sum of those left, a mixture, with the noise of their shares."""
    batch, records, gone, noise = 8, 20, 3, 3.0
    names = [str(each) for each in range(records)]
    accountant = ClientAccountant(names)
    accountant.compose(ClientRound(FixedBatches(batch, records), noise, distributed=True, dropped=gone))
    found = accountant.guarantee("0", delta=1e-3)
    deviation, share = math.sqrt(5 * noise**2 / batch), 5 / records
    x = np.linspace(-60, 60, 200_001)
    with_it = share * norm.pdf(x, -3, deviation) + (1 - share) * norm.pdf(x, -5, deviation)
    zeroed = share * norm.pdf(x, -4, deviation) + (1 - share) * norm.pdf(x, -5, deviation)

    def delta(epsilon):
        pairs = ((with_it, zeroed), (zeroed, with_it))
        return max(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), x) for p, q in pairs)

    exact = brentq(lambda epsilon: delta(epsilon) - 1e-3, 0, 10)
    assert found.lower == pytest.approx(exact, rel=1e-4) and found.lower <= exact * (1 + 1e-7)
    assert exact < found.upper


def test_cohorts_by_coins_against_dp_accounting():
    accountant = ClientAccountant(NAMES, neighbouring="add_or_remove")
    accountant.compose(ClientRound(Poisson(0.1), 1.1), count=30)
    accountant.compose(ClientRound(Poisson(0.2), 1.4, cohort=("ann", "cy")), count=10)
    theirs = PLDAccountant()
    for rate, noise, count in ((0.1, 1.1, 30), (0.2, 1.4, 10)):
        step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
        theirs.compose(step, count)
    found = accountant.guarantee("ann", delta=DELTA)
    assert found.upper == pytest.approx(theirs.get_epsilon(DELTA), rel=2e-3)
    assert found.lower <= theirs.get_epsilon(DELTA)
    other = guarantee(Poisson(0.1), noise_multiplier=1.1, steps=30, delta=DELTA, neighbouring="add_or_remove")
    assert accountant.guarantee("bob", delta=DELTA) == other


def test_equal_rounds_are_counted_together_wherever_they_stand():
    accountant = ClientAccountant(NAMES)
    for _ in range(2):
        accountant.compose(ClientRound(Poisson(0.1), 1.1), count=2)
        accountant.compose(ClientRound(Poisson(0.1), 1.1, cohort=("ann",)))
    assert accountant.ledger("ann") == (Phase(Poisson(0.1), 1.1, 6),)
    assert accountant.ledger("bob") == (Phase(Poisson(0.1), 1.1, 4),)


def test_would_exceed_names_those_above_and_enters_nothing():
    accountant, more = ClientAccountant(NAMES), ClientRound(FullBatch(), 3.0)
    accountant.compose(ClientRound(FullBatch(), 3.0, cohort=("ann",)), count=3)
    limit = float(gaussian_dp.epsilon(DELTA, math.sqrt(3) / 3)) * (1 + 1e-9)
    before = accountant.guarantee("ann", delta=DELTA)
    assert accountant.would_exceed(more, epsilon=limit, delta=DELTA) == ("ann",)
    assert accountant.would_exceed(more, epsilon=limit, delta=DELTA, count=2) == ("ann",)
    assert accountant.would_exceed(more, epsilon=limit, delta=DELTA, count=4) == NAMES
    assert accountant.would_exceed(more, epsilon=limit, delta=DELTA, count=0) == ()
    assert accountant.guarantee("ann", delta=DELTA) == before


def test_a_filter_admits_rounds_as_long_as_the_budget_of_its_order_reaches():
    accountant, target = ClientAccountant(NAMES, neighbouring="add_or_remove"), {"epsilon": 1.5, "delta": DELTA}
    step = {"sampler": Poisson(0.1), "noise_multiplier": 1.5, "neighbouring": "add_or_remove"}
    order = filter_order(**target, **step)
    each = divergence(step.pop("sampler"), **step, order=order)
    one, admitted = ClientRound(Poisson(0.1), 1.5, cohort=("ann", "bob")), 0
    while not accountant.would_exceed_filter(one, **target, order=order):
        accountant.compose(one)
        admitted += 1
    assert admitted == math.floor(filter_budget(**target, order=order) / each) > 5
    assert accountant.would_exceed_filter(ClientRound(Poisson(0.1), 1.5), **target, order=order) == ("ann", "bob")
    assert accountant.would_exceed_filter(one, **target, order=order, count=0) == ()
    assert accountant.guarantee("ann", delta=DELTA).upper <= 1.5


def test_a_cohort_that_is_planned_loses_the_shares_of_those_who_stay_away():
    """Ten are asked, nine drop out: one share of ten is left, and who answers has mu = sqrt(10)/z. Before the round
    both checks know that, as `compose` does after it."""
    names = [f"client {number}" for number in range(10)]
    asked = ClientRound(FullBatch(), 10.0, cohort=tuple(names), distributed=True, dropped=9)
    accountant = ClientAccountant(names)
    spent = float(gaussian_dp.epsilon(1e-5, math.sqrt(10) / 10.0))
    assert spent == pytest.approx(1.1994, abs=1e-4)
    assert accountant.would_exceed(asked, epsilon=0.99 * spent, delta=1e-5) == tuple(names)
    assert accountant.would_exceed(asked, epsilon=1.01 * spent, delta=1e-5) == ()
    left_out = accountant.would_exceed_filter(asked, epsilon=0.75, delta=1e-5, order=30.0)
    assert left_out == tuple(names)
    accountant.compose(ClientRound(FullBatch(), 10.0, cohort=("client 0",), distributed=True, dropped=9))
    assert accountant.guarantee("client 0", delta=1e-5).upper == pytest.approx(spent)


@pytest.mark.parametrize(("distributed", "noise"), [(False, 2.0), (True, 4.0)])
def test_a_filter_allows_for_every_number_of_drop_outs_up_to_the_stated_one(distributed, noise):
    """Fewer make a drawn cohort larger; more leave less of the noise that clients add in shares."""
    names, target = [f"c{place}" for place in range(1000)], {"epsilon": 2.0, "delta": DELTA}
    accountant, kind = ClientAccountant(names, neighbouring="replace_one"), {"distributed": distributed}
    order = filter_order(**target, sampler=FixedBatches(200, 1000), noise_multiplier=noise, neighbouring="replace_one")
    named = {
        dropped: set(
            accountant.would_exceed_filter(
                ClientRound(FixedBatches(200, 1000), noise, dropped=dropped, **kind), **target, order=order
            )
        )
        for dropped in (0, 60, 190)
    }
    assert named[0] <= named[60] <= named[190] == set(names)
    assert named[0] == (set() if distributed else set(names))


def test_an_odometer_shows_no_less_than_what_planned_rounds_spend():
    accountant = ClientAccountant(NAMES)
    assert accountant.odometer("ann", delta=DELTA) == 0.0
    accountant.compose(ClientRound(FixedBatches(2, 4), 5.0), count=12)
    accountant.compose(ClientRound(FullBatch(), 9.0, cohort=("ann",)))
    shown = {name: accountant.odometer(name, delta=DELTA) for name in ("ann", "bob")}
    assert shown["ann"] > shown["bob"] > accountant.guarantee("bob", delta=DELTA).upper
    mu = math.sqrt(12) / 5  # no more than twelve Gaussian rounds, by one of the orders
    assert shown["bob"] <= 4 * mu**2 / 2 + math.log(19 / DELTA) / 3


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_a_saved_ledger_is_loaded_whole_and_to_the_same_bytes(tmp_path, relation):
    accountant = ClientAccountant(NAMES, neighbouring=relation)
    accountant.compose(ClientRound(FixedBatches(3, 4), 0.1 + 0.2, distributed=True, dropped=1), count=3)
    accountant.compose(ClientRound(FullBatch(), 4.0, NAMES[:3], distributed=True, dropped=2, colluding=1))
    accountant.compose(ClientRound(Poisson(1 / 3), 1.1))
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    accountant.save(first)
    loaded = ClientAccountant.load(first)
    loaded.save(second)
    assert first.read_bytes() == second.read_bytes()
    assert loaded.neighbouring == relation
    assert [loaded.ledger(name) for name in NAMES] == [accountant.ledger(name) for name in NAMES]


GOOD = {
    "schema": "dpfl-clients/1",
    "neighbouring": "zero_out",
    "clients": ["a", "b"],
    "rounds": [{"count": 2, "sampler": "poisson", "sample_rate": 0.1, "noise_multiplier": 1.0}],
}


def with_round(**changed):
    """The good file with its round changed; None takes a key away."""
    entry = {key: value for key, value in (GOOD["rounds"][0] | changed).items() if value is not None}
    return json.dumps(GOOD | {"rounds": [entry]})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", "is not a ledger of clients"),
        ("\xff", "is not a ledger of clients"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", '"schema" should be "dpfl-clients/1"'),
        (json.dumps(GOOD).replace('"count": 2', '"count": 2, "count": 3'), "key 'count' stands twice"),
        (json.dumps(GOOD | {"clients": ["a", "a"]}), "clients must be different names"),
        (json.dumps(GOOD | {"clients": "ab"}), "clients must be a list"),
        (json.dumps(GOOD | {"neighbouring": "near"}), "neighbouring must be one of"),
        (json.dumps(GOOD | {"rounds": {}}), "rounds should be a list"),
        (json.dumps(GOOD | {"note": 1}), "'note' is unknown here"),
        (json.dumps({key: value for key, value in GOOD.items() if key != "rounds"}), "'rounds' is missing"),
        (json.dumps(GOOD | {"rounds": [[]]}), "entry 1 of rounds: should be an object"),
        (with_round(sampler="coins"), "entry 1 of rounds: sampler must be one of"),
        (with_round(sampler=["poisson"]), "entry 1 of rounds: sampler must be"),
        (with_round(sampler="shuffled_epochs", sample_rate=None, batch_size=1, records=2), "sampler must be Poisson"),
        (with_round(sample_rate=2), "entry 1 of rounds: sample_rate must be at most 1"),
        (with_round(noise_multiplier="NaN"), "noise_multiplier must be a real number"),
        (with_round(noise_multiplier=float("nan")), "noise_multiplier must be not NaN"),
        (with_round(noise_multiplier=None), "'noise_multiplier' is missing"),
        (with_round(count=0), "count must be at least 1"),
        (with_round(count=1.5), "count must be a whole number"),
        (with_round(cohort=["a", "eve"]), "cohort must name these 2 clients, got 'eve'"),
        (with_round(dropped=1), "dropped: a client of a Poisson cohort"),
        (with_round(epsilon=1), "'epsilon' is unknown here"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, text, line):
    path = tmp_path / "ledger.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as refusal:
        ClientAccountant.load(path)
    assert line in str(refusal.value) and str(path) in str(refusal.value) and "\n" not in str(refusal.value)


def test_what_is_no_file_or_too_long_is_refused_before_it_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "long.json").open("wb") as stream:
        stream.truncate(1 << 40)  # sparse: it takes no room
    for path in (tmp_path / "pipe", tmp_path / "long.json", tmp_path):
        with pytest.raises(InputError, match="is not a ledger of clients: it is not a file of at most"):
            ClientAccountant.load(path)


def test_a_missing_file_and_a_full_folder_are_named(tmp_path):
    with pytest.raises(InputError, match=r"^cannot read .*none\.json: No such file"):
        ClientAccountant.load(tmp_path / "none.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        ClientAccountant(NAMES).save(tmp_path / "file" / "ledger.json")


@pytest.mark.parametrize(
    ("relation", "round_", "line"),
    [
        ("add_or_remove", lambda: ClientRound(FullBatch(), 1.0, distributed=True), "distributed noise tells whether"),
        ("add_or_remove", lambda: ClientRound(FixedBatches(4, 4), 1.0), "batch_size must be below records"),
        ("zero_out", lambda: ClientRound(FixedBatches(2, 5), 1.0), "sampler: records must be the 4 clients, got 5"),
        (
            "zero_out",
            lambda: ClientRound(FixedBatches(2, 5), 1.0, cohort=NAMES),
            "cohort must name records = 5 clients",
        ),
        ("zero_out", lambda: ClientRound(FixedBatches(2, 4), 1.0, dropped=2), "dropped must be below batch_size = 2"),
        (
            "zero_out",
            lambda: ClientRound(Poisson(0.1), 1.0, distributed=True),
            "distributed noise of a cohort by coins",
        ),
        (
            "zero_out",
            lambda: ClientRound(FixedBatches(2, 4), 1.0, distributed=True, colluding=1),
            "colluding is of a named",
        ),
        (
            "zero_out",
            lambda: ClientRound(FullBatch(), 1.0, distributed=True, colluding=4),
            "colluding must leave one of the 4",
        ),
        (
            "zero_out",
            lambda: ClientRound(FullBatch(), 1.0, distributed=True, dropped=4),
            "dropped must leave one of the 4",
        ),
        (
            "zero_out",
            lambda: ClientRound(FullBatch(), 1.0, cohort=("eve",)),
            "cohort must name these 4 clients, got 'eve'",
        ),
        (
            "zero_out",
            lambda: ClientRound(FullBatch(), 1.0, cohort=("x\ny",)),
            r"cohort must name these 4 clients, got 'x\\ny'",
        ),
    ],
)
def test_a_round_that_does_not_fit_is_refused_and_not_entered(relation, round_, line):
    accountant = ClientAccountant(NAMES, neighbouring=relation)
    with pytest.raises(ValueError, match=f"^{line}"):
        accountant.compose(round_())
    assert accountant.ledger("ann") == ()
