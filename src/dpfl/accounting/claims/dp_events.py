"""Import of dp_accounting's events: what a mechanism did, as phases that the accountants here know."""

from __future__ import annotations

from collections.abc import Iterator

from dp_accounting import dp_event as events

from dpfl.accounting.arguments import integer
from dpfl.accounting.guarantees import Phase
from dpfl.accounting.samplers import FixedBatches, FullBatch, Poisson, Sampler, WithReplacement

KNOWN = (
    "GaussianDpEvent, alone or sampled (PoissonSampledDpEvent, SampledWithoutReplacementDpEvent, "
    "SampledWithReplacementDpEvent), composed (ComposedDpEvent, SelfComposedDpEvent), NoOpDpEvent"
)


def from_dp_event(event: events.DpEvent) -> tuple[Phase, ...]:
    """Return the phases that an event of dp_accounting stands for, equal ones joined, in the order of appearance.

    An event says nothing of the neighbouring relation: name it to `guarantee_of_phases`. Both libraries measure
    noise_multiplier by the norm bound of one record's contribution. The order of phases does not change a guarantee.
    Source: the definition of each event in dp_accounting's dp_event.py.
    Raises ValueError naming the event that is not known, a count that is no whole number of at least 0, and the field
    of a sampler that is out of range.

    >>> import dp_accounting
    >>> from dpfl.accounting.claims.dp_events import from_dp_event
    >>> step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1))
    >>> from_dp_event(dp_accounting.SelfComposedDpEvent(step, 1000))
    (Phase(sampler=Poisson(sample_rate=0.01), noise_multiplier=1.1, steps=1000),)
    """
    steps: dict[tuple[Sampler, float], int] = {}
    for sampler, noise_multiplier, count in _flat(event, 1):
        steps[sampler, noise_multiplier] = steps.get((sampler, noise_multiplier), 0) + count
    return tuple(Phase(sampler, noise_multiplier, count) for (sampler, noise_multiplier), count in steps.items())


def _flat(event: events.DpEvent, count: int) -> Iterator[tuple[Sampler, float, int]]:
    """Yield sampler, noise multiplier and number of the steps in `count` times the event."""
    match event:
        case events.NoOpDpEvent():
            return
        case events.SelfComposedDpEvent(event=inner, count=times):
            yield from _flat(inner, count * integer("count", times))
        case events.ComposedDpEvent(events=parts):
            for part in parts:
                yield from _flat(part, count)
        case events.GaussianDpEvent(noise_multiplier=noise):
            yield FullBatch(), noise, count
        case events.PoissonSampledDpEvent(sampling_probability=rate, event=events.GaussianDpEvent() as inner):
            yield Poisson(rate), inner.noise_multiplier, count
        case events.SampledWithoutReplacementDpEvent(event=events.GaussianDpEvent() as inner):
            yield FixedBatches(event.sample_size, event.source_dataset_size), inner.noise_multiplier, count
        case events.SampledWithReplacementDpEvent(event=events.GaussianDpEvent() as inner):
            yield WithReplacement(event.sample_size, event.source_dataset_size), inner.noise_multiplier, count
        case _:
            raise ValueError(f"event {event!r} is not known here; known are {KNOWN}")
