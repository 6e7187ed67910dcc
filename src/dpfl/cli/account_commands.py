"""Check a claimed epsilon of DP-SGD against proven upper and lower bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpfl.accounting.neighbouring import HidesSteps, Neighbouring, Observer
from dpfl.accounting.sampling_keys import Sampling
from dpfl.cli.app import CHECKING, app
from dpfl.errors import InputError
from dpfl.reporting.display_names import at_least, at_most

if TYPE_CHECKING:  # numpy and scipy, which the accountants need, are slow to import
    from dpfl.accounting.guarantees import Guarantee
    from dpfl.accounting.samplers import Sampler

EXAMPLE = (
    "dpfl account --sampler shuffled_epochs --batch-size 64 --records 6000 --noise-multiplier 1.0072 --steps 1880 "
    "--delta 1e-5 --claimed-epsilon 2.93"
)


_HIDDEN = ", without clipping; for the observer last_iterate"


@app.command(epilog=f"Example: {EXAMPLE}", rich_help_panel=CHECKING)
def account(
    sampler: Annotated[str, typer.Option("--sampler", help=f"one of {', '.join(Sampling)}")],
    noise_multiplier: Annotated[float, typer.Option("--noise-multiplier", help="noise std over the clip norm")],
    steps: Annotated[int, typer.Option("--steps", help="noisy steps of the run")],
    delta: Annotated[float, typer.Option("--delta")],
    claimed_epsilon: Annotated[
        float | None, typer.Option("--claimed-epsilon", min=0, help="epsilon that somebody states")
    ] = None,
    sample_rate: Annotated[float | None, typer.Option("--sample-rate", help="for poisson")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", help="for fixed and shuffled batches")] = None,
    records: Annotated[int | None, typer.Option("--records", help="records in all")] = None,
    steps_per_epoch: Annotated[int | None, typer.Option("--steps-per-epoch", help="for balls_in_bins")] = None,
    neighbouring: Annotated[str, typer.Option("--neighbouring", help=", ".join(Neighbouring))] = "zero_out",
    observer: Annotated[str, typer.Option("--observer", help=", ".join(Observer))] = "every_step",
    advantage: Annotated[bool, typer.Option("--advantage", help="add the largest TPR - FPR of a test")] = False,
    fpr: Annotated[
        float | None, typer.Option("--fpr", min=0, max=1, help="add a test's largest TPR at this FPR")
    ] = None,
    smoothness: Annotated[float | None, typer.Option(help=f"of a convex loss{_HIDDEN}")] = None,
    learning_rate: Annotated[float | None, typer.Option(help=f"step size{_HIDDEN}")] = None,
    lipschitz: Annotated[float | None, typer.Option(help=f"bound on a record's gradient{_HIDDEN}")] = None,
    strong_convexity: Annotated[float | None, typer.Option(help=f"of the loss, 0 if left out{_HIDDEN}")] = None,
    diameter: Annotated[float | None, typer.Option(help=f"of the set projected on, if there is one{_HIDDEN}")] = None,
) -> None:
    """Print as a table the epsilon claimed, proven (rounded up), and exceeded at least (down); 1 if refuted."""
    fields = {
        "sample_rate": sample_rate, "batch_size": batch_size, "records": records, "steps_per_epoch": steps_per_epoch,
    }  # fmt: skip
    problem = {
        "smoothness": smoothness, "learning_rate": learning_rate, "lipschitz": lipschitz,
        "strong_convexity": strong_convexity, "diameter": diameter,
    }  # fmt: skip
    run = {"noise_multiplier": noise_multiplier, "steps": steps, "delta": delta}
    conditions = {"neighbouring": neighbouring, "observer": observer}
    try:
        drawn, found, refuted = _judged(sampler, fields, problem, {**run, **conditions}, claimed_epsilon)
        asked = advantage or fpr is not None
        tests = _tests(drawn, noise_multiplier, steps, conditions, advantage, fpr) if asked else {}
    except ValueError as error:
        raise InputError(str(error)) from error
    claimed = "-" if claimed_epsilon is None else f"{claimed_epsilon:.6g}{' (refuted)' if refuted else ''}"
    heads = ["sampler", "neighbouring", "observer", "claimed", "proven", "at least", *tests, "proven by", "at least by"]
    typer.echo(" | ".join(heads))
    cells = [str(drawn), neighbouring, observer, claimed, at_most(found.upper, 6), at_least(found.lower, 6)]
    typer.echo(" | ".join([*cells, *tests.values(), found.upper_by, found.lower_by]))
    if refuted:
        raise typer.Exit(1)


def _judged(
    name: str, fields: dict[str, float | None], problem: dict[str, float | None], run: dict[str, Any],
    claimed_epsilon: float | None,
) -> tuple[Sampler, Guarantee, bool]:  # fmt: skip
    """Return the sampler that the options state, bounds on epsilon for the run, and whether that refutes the claim."""
    from dpfl.accounting.external_claims import ClaimVerdict, judge, sampler_named
    from dpfl.accounting.guarantees import guarantee

    convex = _convex(problem, fields["records"])
    if convex is not None and name == Sampling.FULL:
        fields = {**fields, "records": None}  # the problem has it
    drawn = sampler_named(name, **_given(fields))
    found = guarantee(drawn, **run, convex=convex)
    return drawn, found, claimed_epsilon is not None and judge(claimed_epsilon, found).verdict is ClaimVerdict.REFUTED


def _tests(
    sampler: Sampler, noise_multiplier: float, steps: int, conditions: dict[str, str], advantage: bool,
    fpr: float | None,
) -> dict[str, str]:  # fmt: skip
    """Return the columns of what a test may reach: at least, and at most. Raises ValueError naming the option."""
    from dpfl.accounting.guarantees import Phase, privacy_curve

    if conditions["observer"] != Observer.EVERY_STEP:
        raise ValueError("--advantage and --fpr are known for the observer every_step only")
    phases = [Phase(sampler, noise_multiplier, steps)]
    curve, columns = privacy_curve(phases, neighbouring=conditions["neighbouring"]), {}
    if advantage:
        columns["advantage"] = curve.advantage()
    if fpr is not None:
        columns[f"TPR at FPR {fpr:.6g}"] = curve.true_positive_rate(fpr)
    return {name: f"{at_least(ends.lower, 6)} to {at_most(ends.upper, 6)}" for name, ends in columns.items()}


def _convex(problem: dict[str, float | None], records: int | None) -> HidesSteps | None:
    """Return the problem that the options state, None if they state none. Raises ValueError naming a missing one."""
    from dpfl.accounting import ConvexProblem

    given = _given(problem)
    missing = [name for name in ("smoothness", "learning_rate", "lipschitz") if name not in given]
    if not given:
        return None
    if missing:
        raise ValueError(f"--{missing[0].replace('_', '-')} is missing: a convex problem needs it")
    return ConvexProblem(**given, records=records)


def _given(options: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in options.items() if value is not None}
