"""Settings of asynchronous DP-SGD, of the paper, an entry, a scenario and a cell together."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.experiments.async_dpsgd.input_normalisation import InputNormalisation
from dpfl.experiments.async_dpsgd.schedules import Strategy
from dpfl.experiments.shared.settings import Choice, Count, Epsilon, Positive, Probability, Settings, among


class Scaling(StrEnum):
    """Quantity that stays when batches grow by batch_factor."""

    EPOCHS = "epochs"
    STEP_SIZE = "step_size"
    """Epochs, with step sizes that grow with the batch."""
    ROUNDS = "rounds"


class Mixing(StrEnum):
    """Weights that the server gives the clients."""

    UNIFORM = "uniform"
    JUDGED = "judged"
    """By what they sent: dpfl.algorithms.async_sgd.judged_weights."""


class ScenarioSettings(Settings):
    """The scenario of a cell, and by name the fields of the network that each scenario sets."""

    scenario: str
    scenarios: dict[str, dict[str, Any]]


class AsyncSettings(Settings):
    """Settings of a cell with its scenario's.

    sigma takes the place of epsilon, and grows with the batch by batch_factor. `strategy` names one of `strategies`.
    delta may be "1/N" or "1/(10 N)", N the number of a client's records, as section 3.2 has it. mislabelled: the share
    of the clients whose training labels are replaced by uniform draws; mixing: how the server weighs the clients.
    The bounds of speed_spread to max_distance are those of algorithms.async_events.Network.
    """

    clients: Count
    batch_size: Count
    epochs: Count
    batch_factor: Count
    scaling: Choice[Scaling]
    sampling: Annotated[Choice[Sampling], among(Sampling.FIXED, Sampling.POISSON)]
    neighbouring: Choice[Neighbouring]
    clip_norm: Positive
    delta: Probability | Literal["1/N", "1/(10 N)"]
    epsilon: Epsilon
    sigma: Positive | None
    learning_rate: Positive
    step_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    strategy: str
    strategies: dict[str, Strategy]
    preparation: Choice[InputNormalisation]
    preparation_share: Probability
    components: Count
    speed_spread: float
    delay: float
    jitter: float
    update_loss: float
    broadcast_loss: float
    window: float
    participation: float
    max_staleness: Count | None
    max_distance: float | None
    mixing: Choice[Mixing]
    mislabelled: Annotated[float, Field(ge=0, lt=1)]
