"""One run of asoodeh2021's Algorithm 1, or of a rival on the same task: what a cell asks for, checked, and its privacy.

Constants are those of regularised logistic regression on records of norm at most 1 (shared.logistic_task).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from dpfl.accounting.contraction import average_iterate_rate, convex_iterate_rate, last_iterate_rate
from dpfl.accounting.contraction.federated_release import release_epsilon, release_sigma, round_sigma
from dpfl.accounting.isrl_dp import composed_sigma
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import SAMPLERS, Sampler
from dpfl.accounting.statements.mechanism import Gaussian
from dpfl.accounting.statements.privacy_statement import PrivacyStatement
from dpfl.algorithms.projected_sgd import UserSampling
from dpfl.experiments.shared.logistic_task import CURVATURE, LIPSCHITZ
from dpfl.experiments.shared.settings import Choice, Count, Epsilon, Positive, Probability, Settings
from dpfl.models.glm import Array

HARMONIC = "harmonic"


class AggregatorCell(Settings):
    """A cell within its sweep's settings. `release`: last, random, suffix_<alpha> (one model each) or all.

    step: "harmonic", 1/(regularisation t) in round t, or one number. Either noise_std (of one user's noise in every
    coordinate, in the gradient's unit; 0: no privacy) or epsilon (what the noise is calibrated to; inf: none) is given.
    `stops`: how many stopping rounds of a run that stops at random are measured.
    """

    model: str
    users: Count
    batch_size: Count
    passes: Count = 1
    radius: Positive
    regularisation: Positive
    step: Literal["harmonic"] | Positive
    draw: Choice[UserSampling]
    release: str
    delta: Probability
    noise_std: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    epsilon: Epsilon | None = None
    stops: Count

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError where keys do not go together."""
        if self.batch_size > self.users:
            raise ValueError(
                f"batch_size: m = {self.batch_size} of n = {self.users} users a round; it must be at most n"
            )
        if self.users % self.batch_size:
            raise ValueError(f"batch_size: m = {self.batch_size} must divide the number of users, n = {self.users}")
        if (self.noise_std is None) == (self.epsilon is None):
            raise ValueError("noise_std, epsilon: a cell gives either the noise or the budget that it is calibrated to")
        if self.draw.once and self.passes > 1:
            raise ValueError(f"passes: {self.passes} with draw {self.draw}, which takes each user once; it must be 1")
        self.first_stop  # noqa: B018 (refuses an unknown release)
        return self

    @property
    def rounds(self) -> int:
        """T."""
        return self.passes * self.users // self.batch_size

    @property
    def sampler(self) -> Sampler:
        """Sampler of a round's users: each once, or anew in every round."""
        return SAMPLERS[self.draw.sampling](self.batch_size, self.users)

    @property
    def smoothness(self) -> float:
        """beta of one user's loss, its regulariser included."""
        return CURVATURE + self.regularisation

    @property
    def step_sizes(self) -> Array:
        """eta_t, shape (rounds,)."""
        if self.step == HARMONIC:
            return 1.0 / (self.regularisation * np.arange(1.0, self.rounds + 1.0))
        return np.full(self.rounds, self.step)

    @property
    def first_stop(self) -> int:
        """The first round after which the released model may have been taken; T where it is the last one."""
        name, _, share = self.release.partition("_")
        if self.release in ("last", "all"):
            return self.rounds
        if self.release == "random":
            return 1
        try:
            alpha = float(share)
        except ValueError:
            alpha = math.nan
        if name != "suffix" or not 0 < alpha < 1:
            known = "last, all, random or suffix_<alpha> with alpha between 0 and 1"
            raise ValueError(f"release: {self.release!r} is unknown, should be {known}")
        return max(1, math.ceil(alpha * self.rounds * (1 - 1e-12)))

    @property
    def long_steps(self) -> int:
        """Number of rounds that step by more than 2/beta, beyond the condition of Theorem 2."""
        return int(np.sum(self.step_sizes > 2.0 / self.smoothness))

    @property
    def contracting(self) -> bool:
        """True where the analysis by contraction covers the run: every user once, and one model released."""
        return self.draw.once and self.release != "all"


def calibrated_noise_std(run: AggregatorCell) -> float:
    """Return the noise of one user: as given, or the least that meets the run's epsilon at its delta."""
    if run.noise_std is not None:
        return run.noise_std
    if math.isinf(run.epsilon):
        return 0.0
    if run.contracting:
        return release_sigma(run.epsilon, run.delta, lipschitz=LIPSCHITZ, **_release(run))
    if run.draw.once:
        return round_sigma(run.epsilon, run.delta, m=run.batch_size, lipschitz=LIPSCHITZ)
    sampling = run.draw.sampling
    return composed_sigma(run.epsilon, run.delta, run.users, run.batch_size, run.rounds, sampling)


def privacy(run: AggregatorCell, noise_std: float) -> dict[str, Any]:
    """Return the statement's columns, with what is released and epsilon by contraction (nan where it has no answer).

    noise_multiplier is the deviation of the noise in a round's SUM over one user's largest share, sqrt(m) noise_std/L.
    privacy_epsilon_proven is by composition and holds whatever is released; privacy_epsilon_contraction is Theorem 2's
    (Corollary 3's with a random stop). Both hold where both are given.
    """
    released = {"last": "last model", "all": "all models"}.get(run.release, "one model, its round drawn")
    statement = PrivacyStatement.of(
        Gaussian(),
        run.sampler,
        neighbouring=Neighbouring.REPLACE_ONE,
        records=run.users,
        clip_norm=LIPSCHITZ,
        noise_multiplier=math.sqrt(run.batch_size) * noise_std / LIPSCHITZ,
        steps=run.rounds,
        delta=run.delta,
        note=_note(run),
    )
    last_model = math.nan if noise_std > 0 else math.inf
    if run.contracting and noise_std > 0:
        last_model = release_epsilon(run.delta, sigma=noise_std, lipschitz=LIPSCHITZ, **_release(run))
    return {**statement.columns(), "privacy_released": released, "privacy_epsilon_contraction": last_model}


def excess_bound(run: AggregatorCell, noise_std: float, dimension: int) -> float:
    """Return the paper's bound on the excess risk, the dimension put in; nan where it states none.

    Corollary 1 for the last model of new users, Corollary 2 (its unnamed constant taken as 1) for a random stop of one
    pass, both with harmonic steps; the rate without strong convexity for a random stop of new users at a constant step.
    """
    gradient = LIPSCHITZ + run.regularisation * run.radius
    shared = {"n": run.users, "m": run.batch_size, "dimension": dimension}
    if run.step != HARMONIC:
        if run.draw is UserSampling.NEW_USERS and run.release == "random":
            return convex_iterate_rate(eta=run.step, sigma=noise_std, lipschitz=gradient, radius=run.radius, **shared)
        return math.nan
    if run.draw is UserSampling.NEW_USERS and run.release == "last":
        constants = {"smoothness": run.smoothness, "strong_convexity": run.regularisation, "gradient_bound": gradient}
        return float(last_iterate_rate(sigma=noise_std, gradient_variance=LIPSCHITZ**2, **constants, **shared))
    if run.draw is UserSampling.ONE_PASS and run.release == "random" and noise_std > 0 and run.rounds > 1:
        loss = {"lipschitz": LIPSCHITZ, "smoothness": CURVATURE, "radius": run.radius, "gradient_bound": gradient}
        convex = {"strong_convexity": run.regularisation}
        return average_iterate_rate(eta=run.step_sizes, sigma=noise_std, **loss, **convex, **shared)
    return math.nan


def _release(run: AggregatorCell) -> dict[str, Any]:
    """Return the keywords of the release functions that a run fixes, noise and Lipschitz constant apart."""
    return {
        "n": run.users,
        "m": run.batch_size,
        "eta": run.step_sizes if run.step == HARMONIC else run.step,
        "radius": run.radius,
        "smoothness": run.smoothness,
        "strong_convexity": run.regularisation,
        "first_stop": run.first_stop,
    }


def _note(run: AggregatorCell) -> str:
    """Say how the accounting relates to what runs."""
    if not run.draw.once:
        return "epsilon_proven composes the rounds' freshly drawn batches; all models may be released"
    note = "each user takes part once; epsilon_proven is of that one round, and allows all models to be released"
    if run.contracting:
        note += "; epsilon_contraction needs every other model kept secret, and who took part when"
    if run.contracting and run.long_steps:
        note += f"; {run.long_steps} rounds step beyond 2/beta and are accounted for by the relaxed diameter"
    return note
