"""Check a claimed epsilon of DP-SGD against what is proven and what is refuted."""

from __future__ import annotations

from typing import Annotated

import typer

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.observer import Observer
from dpfl.accounting.samplers import Sampling
from dpfl.cli.app import app
from dpfl.errors import InputError

EXAMPLE = (
    "dpfl account --sampler shuffled_epochs --batch-size 64 --records 6000 --noise-multiplier 1.0072 --steps 1880 "
    "--delta 1e-5 --claimed-epsilon 2.93"
)


@app.command(epilog=f"Example: {EXAMPLE}")
def account(
    sampler: Annotated[str, typer.Option("--sampler", help=f"one of {', '.join(Sampling)}")],
    noise_multiplier: Annotated[float, typer.Option("--noise-multiplier", help="noise std over the clip norm")],
    steps: Annotated[int, typer.Option("--steps", help="noisy steps of the run")],
    delta: Annotated[float, typer.Option("--delta")],
    claimed_epsilon: Annotated[float | None, typer.Option("--claimed-epsilon", help="what somebody says")] = None,
    sample_rate: Annotated[float | None, typer.Option("--sample-rate", help="for poisson")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", help="for fixed and shuffled batches")] = None,
    records: Annotated[int | None, typer.Option("--records", help="records in all")] = None,
    steps_per_epoch: Annotated[int | None, typer.Option("--steps-per-epoch", help="for balls_in_bins")] = None,
    neighbouring: Annotated[str, typer.Option("--neighbouring", help=", ".join(Neighbouring))] = "zero_out",
    observer: Annotated[str, typer.Option("--observer", help=", ".join(Observer))] = "every_step",
) -> None:
    """Print the epsilon that is claimed, proven, and exceeded at least, as one line of a table; 1 if refuted."""
    from dpfl.accounting.claims.claim import Verdict, judge, sampler_named
    from dpfl.accounting.guarantees import guarantee

    fields = {
        "sample_rate": sample_rate,
        "batch_size": batch_size,
        "records": records,
        "steps_per_epoch": steps_per_epoch,
    }
    run = {"noise_multiplier": noise_multiplier, "steps": steps, "delta": delta}
    try:
        drawn = sampler_named(sampler, **{name: value for name, value in fields.items() if value is not None})
        found = guarantee(drawn, **run, neighbouring=neighbouring, observer=observer)
        refuted = claimed_epsilon is not None and judge(claimed_epsilon, found).verdict is Verdict.REFUTED
    except ValueError as problem:
        raise InputError(str(problem)) from problem
    claimed = "-" if claimed_epsilon is None else f"{claimed_epsilon:.6g}{' (refuted)' if refuted else ''}"
    typer.echo("sampler | neighbouring | observer | claimed | proven | at least | proven by | at least by")
    cells = [str(drawn), neighbouring, observer, claimed, f"{found.upper:.6g}", f"{found.lower:.6g}"]
    typer.echo(" | ".join([*cells, found.upper_by, found.lower_by]))
    if refuted:
        raise typer.Exit(1)
