"""The keys of the samplers, without numpy, for the help of `dpfl`. `dpfl.accounting.samplers` has the classes."""

from enum import StrEnum


class Sampling(StrEnum):
    """The one list of samplers: their keys in configurations, tables, privacy statements and on the command line.

    A setting names a sampler before its parameters are known: they follow from the data. So the keys are members of
    their own; each class of samplers.py has its key as `sampling`, and SAMPLERS leads from a key to its class.
    """

    POISSON = "poisson"
    """Each record by its own coin."""
    FIXED = "fixed_without_replacement"
    """A batch of fixed size, no record twice."""
    WITH_REPLACEMENT = "with_replacement"
    """A batch of fixed size, each slot drawn from all records."""
    SHUFFLED = "shuffled_epochs"
    """Each epoch a fresh permutation, cut into batches: every record once an epoch."""
    BALLS_IN_BINS = "balls_in_bins"
    """Each epoch every record falls into one of its batches, each record by its own draw."""
    FULL = "full_batch"
    """All records in every step."""
