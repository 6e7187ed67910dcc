"""Run tables against grid, calibration and themselves; which accountant answers for which statement."""

import math

import pytest

from dpfl.auditing.statements import Statement, against_grid, against_itself, against_noise, check_epsilons, interval
from dpfl.sweeps import Sweep

CELLS = ({"epsilon": 2.0, "split": [1, 2]}, {"epsilon": math.inf, "split": [1, 2]})
SWEEP = Sweep("p", "a", "s_seeds0to1", {"dataset": "d"}, CELLS, (0, 1))


def runs():
    """A run table: two cells, two seeds."""
    return [
        {"epsilon": epsilon, "seed": seed, "status": "finished", "noise_multiplier": noise, "accuracy_pct": "90.5",
         "accuracy_pct_by_round": "[80.0, 90.50]", "privacy_delta": "1e-05"}
        for epsilon, noise in (("2.0", "1.5"), ("inf", "0.0")) for seed in ("0", "1")
    ]  # fmt: skip


def noise():
    """Its calibration."""
    return [
        {"epsilon": "2", "noise_multiplier": "1.50", "privacy_delta": "0.00001", "family": "s"},
        {"epsilon": "inf", "noise_multiplier": "0", "privacy_delta": "0.00001", "family": "s"},
    ]


def test_a_whole_table_has_no_problem():
    assert against_grid(runs(), SWEEP) == against_noise(runs(), noise()) == against_itself(runs()) == []


def test_a_lost_cell_seed_or_run_is_named():
    assert against_grid([run for run in runs() if run["epsilon"] == "2.0"], SWEEP) == ["has no run of epsilon=inf"]
    assert "has no run of seed 1" in against_grid([run for run in runs() if run["seed"] == "0"], SWEEP)[0]
    assert against_grid(runs()[1:], SWEEP) == ["has more runs of one seed than of another"]
    assert against_grid([], SWEEP) == ["has no runs"]


def test_noise_that_was_not_calibrated_is_named():
    other = runs()
    other[0]["noise_multiplier"] = "1.4"
    assert against_noise(other, noise()) == ["noise_multiplier of seed 0 is 1.4, calibrated was 1.50"]
    other[0]["epsilon"] = "3"
    assert against_noise(other, noise()) == ["a run has no row in the noise calibration"]


def test_a_result_that_is_not_that_of_the_last_round_is_named():
    other = runs()
    other[3]["accuracy_pct"] = "91"
    assert against_itself(other) == ["accuracy_pct of seed 1 is 91, after its last round 90.5"]
    other[3]["status"] = "diverged"
    assert against_itself(other) == []


TOLD = {
    "mechanism": "subsampled Gaussian", "sampling": "poisson", "neighbouring": "add_or_remove", "records": "100",
    "sample_rate": "0.1", "noise_multiplier": "1.5", "steps": "40", "delta": "1e-05", "epsilon_rdp": "nan",
    "epsilon_pld": "nan",
}  # fmt: skip


def row(**changes):
    """The statement of a run of DP-SGD, as a run table has it; changes of other names are columns beside it."""
    own = {name: value for name, value in changes.items() if name not in TOLD}
    return own | {f"privacy_{name}": changes.get(name, value) for name, value in TOLD.items()}


LOCAL = {"mechanism": "subsampled Gaussian, per client", "neighbouring": "replace_one"}
FULL = {
    "mechanism": "Gaussian, per client",
    "neighbouring": "replace_one",
    "sampling": "full_batch",
    "sample_rate": "1",
}


@pytest.mark.parametrize(
    ("told", "which", "accountant"),
    [
        ({}, "rdp", "dp_accounting's Renyi accountant"),
        ({"sampling": "shuffled_epochs"}, "pld", "Opacus's PRV accountant"),
        (FULL, "pld", "the closed form"),
        (FULL | {"trust": "shuffler", "clients": "9"}, "pld", "the closed forms for trust in the server and in nobody"),
        (LOCAL | {"sampling": "with_replacement"}, "pld", "Renyi divergences of the privacy profile"),
        (LOCAL | {"sampling": "fixed_without_replacement", "sample_rate": "1"}, "pld", "the closed form"),
        ({"noise_multiplier": "0"}, "pld", "no noise, no guarantee"),
    ],
)
def test_each_mechanism_has_its_second_accountant(told, which, accountant):
    assert interval(Statement.of(row(**told)), which).accountant == accountant


def test_a_mechanism_without_one_is_said_and_no_epsilon_of_it_is_accepted_silently(tmp_path):
    stated = Statement.of(row(mechanism="vector of votes", epsilon_pld="1.0"))
    seen = check_epsilons(tmp_path, [(stated, tmp_path / "runs.csv")])
    assert seen.checked == {} and "no second accountant here" in seen.notes[0]


def test_trust_in_the_server_divides_the_move_by_the_root_of_the_clients():
    alone = interval(Statement.of(row(**FULL, steps="1")), "pld")
    among = interval(Statement.of(row(**FULL, steps="16", trust="server", clients="16")), "pld")
    assert alone.most == pytest.approx(among.most)


def test_what_is_known_to_be_broken_states_what_its_sound_twin_claims():
    sound = Statement.of(row(**LOCAL, sampling="fixed_without_replacement", clipping="record", batch_size="10"))
    broken = Statement.of(row(**LOCAL, sampling="fixed_without_replacement", clipping="mean", batch_size="10"))
    known = Statement.of(
        row(**LOCAL, sampling="fixed_without_replacement", clipping="mean", batch_size="10", known_bad="True")
    )
    assert interval(known, "pld") == interval(sound, "pld") != interval(broken, "pld")


def test_equal_statements_are_one_statement_though_nan_is_not_equal_to_itself():
    assert len({Statement.of(row()), Statement.of(row())}) == 1


def test_without_noise_only_infinity_may_be_claimed(tmp_path):
    for told, findings in (("inf", 0), ("3.0", 1)):
        stated = Statement.of(row(noise_multiplier="0", epsilon_rdp=told, epsilon_pld=told))
        assert len(check_epsilons(tmp_path, [(stated, tmp_path / "runs.csv")]).findings) == 2 * findings


def test_a_cell_that_gives_its_noise_has_no_target_epsilon():
    cells = tuple({"epsilon": math.inf, "sigma": sigma} for sigma in (None, 1.5))
    sweep = Sweep("p", "a", "s_seed0", {}, cells, (0,))
    told = [{"epsilon": "inf", "sigma": "nan"}, {"epsilon": "nan", "sigma": "1.5"}]
    rows = [{**each, "seed": "0", "status": "finished", "noise_multiplier": "3"} for each in told]
    calibrated = [{"epsilon": "inf", "sigma": each["sigma"], "noise_multiplier": "3"} for each in told]
    assert against_grid(rows, sweep) == against_noise(rows, calibrated) == []
    assert against_grid(rows[:1], sweep) == ["has no run of sigma=1.5"]
    calibrated[1]["noise_multiplier"] = "4"
    assert against_noise(rows, calibrated) == ["noise_multiplier of seed 0 is 3, calibrated was 4"]
