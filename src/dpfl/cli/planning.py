"""What a run will need, before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from dpfl import config as configuration
from dpfl.cli.options import DEFAULT_CONFIG, app
from dpfl.control import cost
from dpfl.errors import InputError

PROBE_SECONDS = 20.0


@app.command(epilog="Example: dpfl plan --scale paper --profile slurm")
def plan(
    scale: Annotated[str | None, typer.Option("--scale", help="demo, quick or paper; else the configuration's")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="your own settings, laid over config.yaml")] = None,
    profile: Annotated[str, typer.Option("--profile", help="a folder of workflow/profiles")] = "default",
    at_once: Annotated[int | None, typer.Option("--at-once", min=1, help="jobs that run at the same time")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="time this machine first, for 20 seconds")] = False,
    fit: Annotated[bool, typer.Option("--fit", help="write costs.csv anew from this machine and results/*")] = False,
) -> None:
    """Show jobs, core-hours, GPU-hours, memory and time on the clock of a run, before anything starts.

    Unit costs are those of the machine that costs.csv was measured on: training steps of image models timed there,
    other algorithms fitted to finished sweeps. --measure times this machine's training steps instead, and stretches the
    rest by the same factor; for training.device cuda it times the GPU.
    """
    from dpfl.control.plan import lines, place

    resolved = _laid_over(config, scale)
    units = cost.table()
    if fit:
        units = _fitted()
    if measure:
        units = _measured(units, resolved["training"]["device"])
    where = place(profile, resolved["training"]["threads"], resolved["training"]["device"], at_once)
    for line in lines(resolved, where, units):
        print(line)


def _laid_over(config: Path | None, scale: str | None) -> dict:
    """Return the configuration as Snakemake sees it: config.yaml, then `config`, then the scale."""
    base = configuration.read(DEFAULT_CONFIG)
    if config is not None:
        try:
            own = yaml.safe_load(config.read_text(encoding="utf-8")) or {}
        except (FileNotFoundError, yaml.YAMLError):
            raise InputError(f"no configuration at {config}, or none that is YAML") from None
        for key, value in own.items():
            base[key] = {**base[key], **value} if isinstance(base.get(key), dict) and isinstance(value, dict) else value
    return configuration.resolve(base | ({"scale": scale} if scale else {}))


def _measured(units: dict[str, cost.Unit], device: str) -> dict[str, cost.Unit]:
    """Return the units of this machine."""
    from dpfl.control import probe

    own = probe.measure(probe.KINDS, PROBE_SECONDS, device)
    factor = probe.slowdown(own, units)
    print(f"this machine takes {factor:.2f} times as long as the one that was measured")
    return {kind: unit.scaled(factor) for kind, unit in units.items()} | own


def _fitted() -> dict[str, cost.Unit]:
    """Write the table anew, and return it."""
    from dpfl.control import fit, probe

    known = {kind: unit for kind, unit in cost.table().items()} | probe.measure(probe.KINDS, 3 * PROBE_SECONDS)
    sweeps = list(fit.measured(Path("results")))
    units = fit.fit(known, sweeps)
    for each in sweeps:
        predicted = cost.estimate(each.sweep, units).seconds
        print(f"{each.sweep.paper} {each.sweep.name}: {each.seconds:.0f} s, {predicted / each.seconds:.2f} predicted")
    fit.write(units, cost.TABLE)
    return units
