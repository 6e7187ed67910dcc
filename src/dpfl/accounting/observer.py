"""One noun a file."""

from __future__ import annotations

from enum import StrEnum


class Observer(StrEnum):
    """What of a run is seen by whom its privacy is to be kept from."""

    EVERY_STEP = "every_step"
    """Every noisy gradient, or every iterate."""
    LAST_ITERATE = "last_iterate"
    """The model after the last step only."""
    ROUND_ENDS = "round_ends"
    """The models after the last step of each round, the last step of the run among them."""
