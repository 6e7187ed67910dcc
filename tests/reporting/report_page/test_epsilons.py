from dataclasses import replace

import pandas as pd
import pytest

from dpfl.accounting.samplers import Sampling
from dpfl.convex.federated_rounds import Clipping
from dpfl.convex.silo_jobs import ClientMessages, NoiseRule, statement
from dpfl.reporting.display_names import EpsilonVerdict
from dpfl.reporting.report_page.epsilons import (
    ONE_NOISE,
    OWN_BOUND,
    by_sampling,
    counts,
    in_sentences,
    statements,
    under_other_batches,
    with_verdict,
)

NOISE = "accounting/bhaskar2025.csv"


def test_a_setting_appears_once_and_one_without_privacy_not_at_all(made):
    known = statements(made[0], "bhaskar2025")
    assert [(each.claimed, each.proven) for each in known] == [(1.2, 3.0), (2.93, 2.64), (2.93, 28.1)]


def test_settings_that_read_the_same_count_once(changed):
    def alike(table):
        first = table.head(1)
        other = first.assign(
            calibration_key="another",
            privacy_noise_multiplier=first["privacy_noise_multiplier"] * (1 + 1e-15),  # of another processor
            privacy_epsilon_contraction=first["privacy_epsilon_proven"] + 1,  # proves less, so it does not count
        )
        more = first.assign(privacy_noise_multiplier=first["privacy_noise_multiplier"] * (1 + 1e-6))
        return pd.concat([first, other, more])

    assert len(statements(changed(NOISE, alike), "bhaskar2025")) == 2


def test_standing_follows_from_the_three_epsilons(made):
    known = statements(made[0], "bhaskar2025")
    assert [each.verdict for each in known] == [EpsilonVerdict.UNPROVEN, EpsilonVerdict.PROVEN, EpsilonVerdict.REFUTED]
    assert counts(known) == {EpsilonVerdict.PROVEN: 1, EpsilonVerdict.REFUTED: 1, EpsilonVerdict.UNPROVEN: 1}


def test_what_contraction_proves_counts_where_only_the_last_model_is_seen(changed):
    folder = changed(NOISE, lambda table: table.head(1).assign(privacy_epsilon_contraction=0.5))
    [found] = statements(folder, "bhaskar2025")
    assert (found.proven, found.observer) == (0.5, "last model")


def test_groups_are_by_what_an_epsilon_belongs_to(made):
    [(group, known)] = by_sampling(statements(made[0], "bhaskar2025")).items()
    assert group == ("poisson", OWN_BOUND, "zero out", "every step") and len(known) == 3


def test_a_paper_without_noise_has_no_epsilon(made):
    assert statements(made[0], "asoodeh2020") == []


SHUFFLED = "divisor 64; the noise is calibrated for Poisson sampling, the batches are shuffled_epochs"


def shuffled(table: pd.DataFrame) -> pd.DataFrame:
    """The noise, with the epsilon that is refuted and one more under shuffled batches."""
    stated = table["epsilon"].eq(2.93) & table["privacy_epsilon_refuted"].eq(12.8)
    less = table[stated].assign(epsilon=1.2, privacy_epsilon_refuted=1.96, calibration_key="another")
    other = pd.concat([table[stated], less]).assign(privacy_sampling="shuffled_epochs", privacy_note=SHUFFLED)
    return pd.concat([table[~stated], other])


@pytest.mark.parametrize(
    ("rule", "clipping", "stated_by"),
    [
        (NoiseRule.MOMENTS, Clipping.RECORD, "the authors' later script"),
        (NoiseRule.ADVANCED_COMPOSITION, Clipping.RECORD, "the paper's formula"),
        (NoiseRule.ADVANCED_COMPOSITION, Clipping.MEAN, "the scripts' form of Theorem 2.1 with the batch mean clipped"),
        (NoiseRule.TIGHT, Clipping.RECORD, OWN_BOUND),
    ],
)
def test_what_states_an_epsilon_is_read_from_the_experiments_own_note(changed, rule, clipping, stated_by):
    messages = ClientMessages(5, 50, 3, 1e-4, Sampling.FIXED, clipping, batch_share=0.1)
    note = statement(rule, messages, 1.0, "rest").note
    [found] = statements(changed(NOISE, lambda table: table.head(1).assign(privacy_note=note)), "bhaskar2025")
    assert found.stated_by == stated_by


@pytest.mark.parametrize(
    ("note", "stated_by"),
    [
        (
            "batch normalisation, which no guarantee covers; the updates alone would spend 2",
            "an accountant of the updates alone",
        ),
        (
            "arsinh noise: bounded for moves of the sum along one axis, no proof for others",
            "an accountant for moves along one axis",
        ),
        ("rounds composed; segments with 0.302, 1 times this noise, composed", ONE_NOISE),
        ("rounds composed", OWN_BOUND),
    ],
)
def test_a_control_of_ours_is_no_epsilon_of_an_accountant_for_its_batches(changed, note, stated_by):
    def control(table):
        return table.head(1).assign(epsilon=2.0, privacy_epsilon_refuted=2.1, privacy_note=note)

    [found] = statements(changed(NOISE, control), "bhaskar2025")
    assert found.stated_by == stated_by


def test_shuffled_batches_under_the_epsilon_of_poisson_batches_are_a_group_of_their_own(changed):
    known = statements(changed(NOISE, shuffled), "bhaskar2025")
    groups = by_sampling(known)
    assert [(group[:2], len(rows)) for group, rows in groups.items()] == [
        (("poisson", OWN_BOUND), 2),
        (("shuffled epochs", "a bound for Poisson batches"), 2),
    ]
    assert under_other_batches(known) == [
        "Shuffled epochs with the ε for Poisson batches: refuted in both settings (claimed 1.2, in truth at least "
        "1.960; claimed 2.93, in truth at least 12.80)."
    ]


def test_sentences_count_the_epsilons_of_a_paper_and_say_why_some_are_refuted(changed):
    known = statements(changed(NOISE, shuffled), "bhaskar2025")
    assert in_sentences(known) == (
        "Epsilons 1.2, 2.93 of the paper's settings (δ = 10⁻⁵, neighbours: zero out): 1 proven, 2 refuted, 1 unproven. "
        "Refuted: 2 (shuffled epochs, ε from a bound for Poisson batches). The noise of these runs is too "
        "small for the claimed ε (the ε spent is at least 1.6 times the claimed one, in the worst case at least 4.3 "
        "times)."
    )
    assert in_sentences([]) == ""
    other = replace(known[0], neighbouring="replace one")
    assert "2 (shuffled epochs, zero out, ε from" in in_sentences([*known, other]), "two relations: each is named"


def test_sentences_tell_the_papers_epsilons_from_those_of_our_studies(changed):
    known = statements(changed(NOISE, shuffled), "bhaskar2025")
    proven = replace(known[1], verdict=EpsilonVerdict.PROVEN)
    studies = [replace(each, of_study=True) for each in known if each.verdict is EpsilonVerdict.REFUTED]
    assert in_sentences([proven, replace(proven, claimed=7.53), *studies]) == (
        f"Epsilons {proven.claimed:g}, 7.53 of the paper's settings (δ = 10⁻⁵, neighbours: zero out): both proven. "
        "Epsilons of our own studies (δ = 10⁻⁵, neighbours: zero out): both refuted. Refuted: 2 (shuffled epochs, ε "
        "from a bound for Poisson batches). The noise of these runs is too small for the claimed ε (the ε "
        "spent is at least 1.6 times the claimed one, in the worst case at least 4.3 times)."
    )
    alone = [replace(proven, of_study=True, delta=delta) for delta in (1e-5, 1e-6)]
    assert in_sentences(alone) == "Epsilons of our own studies (neighbours: zero out): both proven."


def test_the_records_that_spend_more_are_named_in_the_same_sentence(changed):
    known = statements(changed(NOISE, shuffled), "bhaskar2025")
    proven = replace(known[1], verdict=EpsilonVerdict.PROVEN)
    limit = {"for": "a record of one client", "but": "other records spend more"}
    assert in_sentences([proven] * 8 + [replace(proven, of_study=True)] * 2, limit) == (
        "Epsilons of the paper's settings (δ = 10⁻⁵, neighbours: zero out): all 8 proven, for a record of one client; "
        "other records spend more. Epsilons of our own studies (δ = 10⁻⁵, neighbours: zero out): both proven, for a "
        "record of one client."
    )
    assert in_sentences([], limit) == ""


def test_batches_that_keep_the_epsilon_of_others_are_said_to_after_those_that_do_not(changed):
    def balls(table: pd.DataFrame) -> pd.DataFrame:
        note = SHUFFLED.replace("shuffled_epochs", "balls_in_bins")
        kept = table.head(1).assign(privacy_sampling="balls_in_bins", privacy_note=note)
        return pd.concat([kept, shuffled(table).query("epsilon != 1.2")])

    shown = under_other_batches(statements(changed(NOISE, balls), "bhaskar2025"))
    assert [text.partition(" with")[0] for text in shown] == ["Shuffled epochs", "Balls in bins"]
    assert shown[0].endswith("refuted in its only setting (claimed 2.93, in truth at least 12.80).")
    assert shown[1] == "Balls in bins with the ε for Poisson batches: proven in its only setting."


def test_nothing_is_said_of_other_batches_where_none_were_drawn(made):
    assert under_other_batches(statements(made[0], "bhaskar2025")) == []


def test_the_noise_of_an_earlier_wider_configuration_does_not_count(made, keys):
    assert len(statements(made[0], "bhaskar2025", (), keys)) == 3
    [left] = statements(made[0], "bhaskar2025", (), keys[1:2])
    assert left.verdict == EpsilonVerdict.REFUTED


def test_a_setting_is_of_a_study_where_nothing_else_has_it(made, keys):
    def of_study(*studies):
        return [each.of_study for each in statements(made[0], "bhaskar2025", studies)]

    first, second, third, _, same_as_first = keys
    assert of_study(second, third) == [True, False, True] and of_study(first) == [False, False, False]
    assert of_study(first, same_as_first) == [False, True, False]
    assert with_verdict(statements(made[0], "bhaskar2025", [second]), EpsilonVerdict.REFUTED) == [
        (1, f"poisson, zero out, ε from {OWN_BOUND}, in our own studies")
    ]


def test_epsilons_of_a_standing_come_by_source_and_in_the_order_of_their_number(changed):
    def many(table: pd.DataFrame) -> pd.DataFrame:
        script = table.assign(privacy_note="noise as published (moments) for epsilon 3", privacy_records=7)
        more = [script.assign(privacy_steps=steps) for steps in (1, 2, 3)]
        return pd.concat([table, *more])

    known = statements(changed(NOISE, many), "bhaskar2025")
    assert with_verdict(known, EpsilonVerdict.REFUTED) == [
        (3, "poisson, zero out, ε from the authors' later script"),
        (1, f"poisson, zero out, ε from {OWN_BOUND}"),
    ]
    assert (
        sum(count for count, _ in with_verdict(known, EpsilonVerdict.UNPROVEN))
        == counts(known)[EpsilonVerdict.UNPROVEN]
    )


def test_a_table_without_private_settings_states_nothing(changed):
    assert statements(changed(NOISE, lambda table: table[table["epsilon"] > 9]), "bhaskar2025") == []
