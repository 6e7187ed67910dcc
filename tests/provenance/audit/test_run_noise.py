"""The noise of runs against the calibration."""

import pytest

from dpfl.provenance.audit.records import against_noise, refutes_more

RUN = {"epsilon": "2.0", "seed": "0", "status": "finished", "noise_multiplier": "1.5", "privacy_delta": "1e-05"}
ROW = {"epsilon": "2", "noise_multiplier": "1.50", "privacy_delta": "0.00001", "calibration_key": "s"}
OTHER = {"epsilon": "inf", "noise_multiplier": "0", "privacy_delta": "0.00001", "calibration_key": "s"}


def test_the_calibrated_noise_has_no_problem():
    assert against_noise([RUN, {**RUN, "epsilon": "inf", "noise_multiplier": "0.0"}], [ROW, OTHER]) == []
    assert against_noise([], [ROW]) == []


def test_noise_that_was_not_calibrated_is_named():
    problems = against_noise([{**RUN, "noise_multiplier": "1.4"}], [ROW, OTHER])
    assert problems == ["noise_multiplier of seed 0 is 1.4, calibrated was 1.50"]
    assert against_noise([{**RUN, "epsilon": "3"}], [ROW, OTHER]) == ["a run has no row in the noise calibration"]


def test_a_cell_that_gives_its_noise_has_no_target_epsilon():
    told = [{"epsilon": "inf", "sigma": "nan"}, {"epsilon": "nan", "sigma": "1.5"}]
    calibrated = [{"epsilon": "inf", "sigma": each["sigma"], "noise_multiplier": "3"} for each in told]
    assert against_noise([{**each, "noise_multiplier": "3"} for each in told], calibrated) == []
    calibrated[1]["noise_multiplier"] = "4"
    problems = against_noise([{**each, "seed": "0", "noise_multiplier": "3"} for each in told], calibrated)
    assert problems == ["noise_multiplier of seed 0 is 3, calibrated was 4"]


@pytest.mark.parametrize(
    ("column", "stated", "now", "is_found"),
    [
        ("privacy_epsilon_proven", "2.5", "2.0", False),
        ("privacy_epsilon_proven", "2.0001", "2.0002", False),
        ("privacy_epsilon_proven", "1.9", "2.0", True),
        ("privacy_epsilon_proven", "1.9", "inf", True),
        ("privacy_epsilon_contraction", "1.9", "2.0", True),
        ("privacy_epsilon_refuted", "1.4", "1.5", False),
        ("privacy_epsilon_refuted", "1.6", "1.5", False),  # a mended lower end: counted
        ("privacy_proven_by", "the clones bound", "the blanket bound", False),
        ("privacy_delta", "1e-5", "1e-6", True),
        ("noise_multiplier", "1.5", "1.6", True),
        ("noise_multiplier", "1.5", "1.5000009", False),
        ("noise_multiplier", "1.5", "1.50001", True),
        ("privacy_noise_multiplier", "1.5", "1.5000009", False),
    ],
)
def test_what_an_earlier_calibration_proved_may_be_less_than_what_is_proven_now(column, stated, now, is_found):
    told, calibrated = [{**RUN, column: stated}], [{**ROW, column: now}]
    assert len(against_noise(told, calibrated)) == 1
    assert len(against_noise(told, calibrated, earlier=True)) == is_found


def test_cells_that_differ_in_their_noise_alone_each_have_their_own_row():
    rows = [{"noise_std": noise, "noise_multiplier": noise, "privacy_delta": noise} for noise in ("0", "0.25", "0.5")]
    told = [{"noise_std": "0.25", "noise_multiplier": "0.25", "privacy_delta": "0.25", "seed": "0"}]
    assert against_noise(told, rows) == []
    assert len(against_noise([{**told[0], "privacy_delta": "0.5"}], rows)) == 1
    assert len(against_noise([{**told[0], "noise_std": "0.3"}], rows)) == 3


@pytest.mark.parametrize(
    ("stated", "now", "is_more"),
    [("1.6", "1.5", True), ("1.5", "1.5", False), ("", "1.5", False), ("1.6", "", False), ("1.5001", "1.5", False)],
)
def test_an_epsilon_that_is_refuted_no_more_is_seen(stated, now, is_more):
    told, calibrated = [{**RUN, "privacy_epsilon_refuted": stated}], [{**ROW, "privacy_epsilon_refuted": now}]
    assert refutes_more(told, calibrated) is is_more
    assert not refutes_more([RUN], [ROW])
