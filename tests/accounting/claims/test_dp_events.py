"""dp_accounting's events give the phases that its own PLD accountant accounts for."""

import dp_accounting
import pytest
from dp_accounting import dp_event as events
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.accounting.external_claims import from_dp_event
from dpfl.accounting.guarantees import Phase, guarantee_of_phases
from dpfl.accounting.samplers import FixedBatches, FullBatch, Poisson, WithReplacement

GAUSSIAN = events.GaussianDpEvent(2.0)
STEP = events.PoissonSampledDpEvent(0.1, events.GaussianDpEvent(1.0))


@pytest.mark.parametrize(
    ("event", "phases"),
    [
        (GAUSSIAN, (Phase(FullBatch(), 2.0, 1),)),
        (STEP, (Phase(Poisson(0.1), 1.0, 1),)),
        (events.SelfComposedDpEvent(STEP, 7), (Phase(Poisson(0.1), 1.0, 7),)),
        (events.ComposedDpEvent([STEP, GAUSSIAN, STEP]), (Phase(Poisson(0.1), 1.0, 2), Phase(FullBatch(), 2.0, 1))),
        (
            events.SelfComposedDpEvent(events.ComposedDpEvent([STEP, events.SelfComposedDpEvent(GAUSSIAN, 2)]), 3),
            (Phase(Poisson(0.1), 1.0, 3), Phase(FullBatch(), 2.0, 6)),
        ),
        (events.SampledWithoutReplacementDpEvent(100, 5, GAUSSIAN), (Phase(FixedBatches(5, 100), 2.0, 1),)),
        (events.SampledWithReplacementDpEvent(100, 5, GAUSSIAN), (Phase(WithReplacement(5, 100), 2.0, 1),)),
        (events.ComposedDpEvent([events.NoOpDpEvent()]), ()),
    ],
)
def test_known_events(event, phases):
    assert from_dp_event(event) == phases


@pytest.mark.parametrize(
    "event",
    [
        events.LaplaceDpEvent(1.0),
        events.NonPrivateDpEvent(),
        events.UnsupportedDpEvent(),
        events.PoissonSampledDpEvent(0.1, STEP),
        events.ComposedDpEvent([STEP, events.SingleEpochTreeAggregationDpEvent(1.0, 4)]),
        "GaussianDpEvent",
    ],
)
def test_an_unknown_event_is_named_in_one_line(event):
    with pytest.raises(ValueError, match=r"^event .* is not known here; known are Gaussian") as caught:
        from_dp_event(event)
    assert "\n" not in str(caught.value)


def test_a_rate_out_of_range_is_named():
    with pytest.raises(ValueError, match="sample_rate"):
        from_dp_event(events.PoissonSampledDpEvent(1.5, GAUSSIAN))


@pytest.mark.parametrize("count", [-3, 2.5, "3", True])
def test_a_count_that_is_none_is_refused(count):
    """-3 steps and 10 more were 7."""
    with pytest.raises(ValueError, match="count"):
        from_dp_event(events.ComposedDpEvent([events.SelfComposedDpEvent(STEP, count), STEP]))


@settings(max_examples=2, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.02, 0.5), st.floats(0.8, 4.0), st.integers(1, 30)), min_size=1, max_size=2
    )
)  # fmt: skip
def test_the_interval_agrees_with_their_accountant(parts):
    event = dp_accounting.ComposedDpEvent(
        [
            events.SelfComposedDpEvent(events.PoissonSampledDpEvent(rate, events.GaussianDpEvent(noise)), count)
            for rate, noise, count in parts
        ]
    )
    found = guarantee_of_phases(from_dp_event(event), delta=1e-5, neighbouring="add_or_remove")
    theirs = PLDAccountant(value_discretization_interval=1e-4).compose(event).get_epsilon(1e-5)
    # Theirs is pessimistic: never below the truth, above it by its grid of 1e-4.
    assert found.lower <= theirs * (1 + 1e-6) + 1e-9
    assert theirs <= found.upper * (1 + 1e-3) + 2e-3
