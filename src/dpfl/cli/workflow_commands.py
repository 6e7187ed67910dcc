"""Plan, run and watch the workflow."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpfl.catalog import load
from dpfl.cli.app import DAILY, DEFAULT_CONFIG, STAGES, app
from dpfl.errors import InputError
from dpfl.files import require_writable
from dpfl.grid import configuration
from dpfl.grid.configuration import load_mapping
from dpfl.pipeline import unchanged

if TYPE_CHECKING:
    from dpfl.grid.training_job import TrainingJob
    from dpfl.pipeline.cost import UnitCost
    from dpfl.pipeline.plan import Machines

ScaleOption = Annotated[str | None, typer.Option("--scale", help="demo, quick or paper; else the configuration's")]
OverlayOption = Annotated[Path | None, typer.Option("--config", help="your own settings, over config.yaml")]
ProfileOption = Annotated[str, typer.Option("--profile", help="a folder of workflow/profiles")]
PROBE_SECONDS = 20.0
MADE_WHERE_ASKED = ("train", "train_gpu", "accounting")
"""Rules that match what is not finished only (workflow/rules/common.smk): Snakemake runs all that they match."""


@app.command(epilog="Example: dpfl plan --scale paper --profile slurm", rich_help_panel=DAILY)
def plan(
    scale: ScaleOption = None,
    config: OverlayOption = None,
    profile: ProfileOption = "default",
    at_once: Annotated[int | None, typer.Option("--at-once", min=1, help="jobs that run at the same time")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="time this machine first, for 20 seconds")] = False,
    fit: Annotated[bool, typer.Option("--fit", help="rewrite costs.csv from this machine and results/*")] = False,
) -> None:
    """Show jobs, core-hours, GPU-hours, memory and wall time of a run before it starts.

    Unit costs are those of the machine that costs.csv was measured on: training steps of image models were timed there,
    other experiments fitted to finished jobs. --measure times this machine's training steps instead and scales the
    rest by the same factor; for training.device cuda it times the steps on the GPU, and leaves the rest.
    """
    from dpfl.grid import expansion
    from dpfl.pipeline import cost
    from dpfl.pipeline.plan import lines, machines_of
    from dpfl.pipeline.status import noise_made_anew

    _require_project("plan")
    resolved = configuration.overlaid(DEFAULT_CONFIG, config, scale)
    training, units = resolved["training"], cost.table()
    where = machines_of(profile, training["threads"], training["device"], training["jobs_per_gpu"], at_once)
    _require_usable(resolved, expansion.expand(resolved))
    if fit:
        units = _fitted()
    if measure:
        units = _measured(units, training["device"])
    for line in lines(resolved, where, units):
        print(line)
    if noise := noise_made_anew(resolved):
        print(_first(noise))


def _measured(units: dict[str, UnitCost], device: str) -> dict[str, UnitCost]:
    """Return the units of this machine."""
    from dpfl.pipeline import cost, cost_fitting

    own = cost_fitting.measure(cost_fitting.KINDS, PROBE_SECONDS, device)
    if device == "cuda":
        return units | {cost.on_gpu(kind): unit for kind, unit in own.items()}
    factor = cost_fitting.slowdown(own, units)
    print(f"this machine takes {factor:.2f} times as long as the one that was measured")
    return {kind: unit.scaled(factor) for kind, unit in units.items()} | own


def _fitted() -> dict[str, UnitCost]:
    """Rewrite costs.csv, and return its units."""
    from dpfl.pipeline import cost, cost_fitting

    known = cost.table() | cost_fitting.measure(cost_fitting.KINDS, 3 * PROBE_SECONDS)
    jobs = list(cost_fitting.measured(Path("results")))
    units = cost_fitting.fit(known, jobs)
    for each in jobs:
        predicted = cost.estimate(each.job, units).seconds
        print(f"{each.job.paper} {each.job.name}: {each.seconds:.0f} s, {predicted / each.seconds:.2f} predicted")
    cost_fitting.write(units, cost.TABLE)
    return units


@app.command(epilog="Example: dpfl run --scale demo", rich_help_panel=DAILY)
def run(
    scale: ScaleOption = None,
    config: OverlayOption = None,
    profile: ProfileOption = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would run")] = False,
    more: Annotated[list[str] | None, typer.Argument(help="options for Snakemake, after --")] = None,
) -> None:
    """Run the workflow to its end; continue where an earlier run stopped, however it stopped."""
    _require_project("run")
    if dry_run or more:
        raise typer.Exit(_run_anyway(scale, config, profile, dry_run, more or []))
    from dpfl.pipeline.lock import only_run

    resolved = configuration.overlaid(DEFAULT_CONFIG, config, scale)
    name, code = resolved["scale"], unchanged.code_state(resolved, profile)
    if Path(".snakemake").is_dir():  # a run that ended well has left it
        with only_run():
            states = [code, unchanged.results_state(name), unchanged.data_state(resolved)]
            if unchanged.said_when_done("run", name, states) is not None:
                print("dpfl: nothing to do: every file is as the last run left it", file=sys.stderr)
                return
    status = _run_anyway(scale, config, profile, dry_run, [])
    if status == 0:
        unchanged.note("run", name, [code, unchanged.results_state(name), unchanged.data_state(resolved)])
    raise typer.Exit(status)


def _run_anyway(scale: str | None, config: Path | None, profile: str, dry_run: bool, more: list[str]) -> int:
    """Have Snakemake look at every file, and make what has to be made; return its exit status."""
    from dpfl.data.fetch import configured
    from dpfl.grid import expansion
    from dpfl.pipeline.plan import machines_of, require_no_brace
    from dpfl.pipeline.run import engine_options
    from dpfl.results import SCALES

    if scales := [word for word in more if word in SCALES]:
        raise InputError(f"{scales[0]} is a scale: write dpfl run --scale {scales[0]}")
    if ours := engine_options(more).ours:
        raise InputError(f"{ours[0]} cannot stand after --: dpfl run sets it, by --scale, --config and --profile")
    resolved = configuration.overlaid(DEFAULT_CONFIG, config, scale)
    jobs = expansion.expand(resolved)
    _require_usable(resolved, jobs)
    if not jobs and (key := next((key for key in resolved["papers"] if load(key).grid), "")):
        known = [scale for scale in load(key).grid if scale not in ("base", "lists")]
        raise InputError(f"{key}/grid.yaml has no runs of scale {resolved['scale']}, only of {', '.join(known)}")
    configured(resolved["data"]["mirror"])
    training = resolved["training"]
    where = machines_of(profile, training["threads"], training["device"], training["jobs_per_gpu"])
    require_no_brace(Path(resolved["data"]["folder"]).absolute())
    require_writable(Path("results"), Path(resolved["data"]["folder"]))
    limits = [] if where.on_cluster else _limits(profile, training["device"] == "cuda", training["jobs_per_gpu"])
    overlay = ["--configfile", str(config)] if config and load_mapping(config) else []  # Snakemake refuses an empty one
    # The profile is last: the options before it take all the words that follow, targets too.
    options = [*overlay, *limits, "--config", f"scale={resolved['scale']}", "--profile", f"workflow/profiles/{profile}"]
    options += ["--dry-run"] if dry_run else []
    named = {"CONFIG": config, "PROFILE": profile if profile != "default" else None}
    again = shlex.join(["make", resolved["scale"], *(f"{name}={value}" for name, value in named.items() if value)])
    return _run(resolved, jobs, where, options, more, again)


def _require_usable(resolved: dict[str, Any], jobs: list[TrainingJob]) -> None:
    """Raise InputError for a slip in a setting, table, figure or claim that would be found when all is trained."""
    from dpfl import catalog, experiments
    from dpfl.reporting.claims import require_usable
    from dpfl.reporting.figures import FigureRecipe
    from dpfl.reporting.results import own_code
    from dpfl.reporting.tables import TableRecipe

    recipes = {"tables": TableRecipe, "figures": FigureRecipe}

    for job in jobs:
        experiments.require_known(job)
    for paper in resolved["papers"]:
        with own_code(paper, "claims"):
            require_usable(paper)
        for kind in ("tables", "figures"):
            with own_code(paper, kind):
                unnamed = catalog.recipes(paper, kind).keys() - getattr(load(paper), kind).keys()
            if unnamed:
                raise InputError(f"{paper}: {kind} of paper.yaml lacks {min(unnamed)}, which {kind.upper()} has")
            for name in getattr(load(paper), kind):
                made = catalog.recipe(paper, kind, name)
                if not isinstance(made, wanted := recipes[kind]):
                    raise InputError(
                        f"{paper}: {name} in {kind.upper()} is a {type(made).__name__}; it must be a {wanted.__name__}"
                    )


def _limits(profile: str, on_gpus: bool, jobs_per_gpu: int) -> list[str]:
    """Return the option that starts no more jobs than there is memory for and, `on_gpus`, so many for each GPU
    that is here, unless the profile says other numbers; its own are said again, for the option replaces them."""
    from dpfl.pipeline.devices import memory_mb, require_gpu
    from dpfl.pipeline.plan import PROFILES, resources_of

    gpus = {"gpu": jobs_per_gpu * len(require_gpu())} if on_gpus else {}
    here = {**gpus, "mem_mb": memory_mb()}
    resources = here | resources_of(load_mapping(PROFILES / profile / "config.yaml"))
    return ["--resources", *(f"{name}={value}" for name, value in resources.items())]


def _run(
    resolved: dict[str, Any], jobs: list[TrainingJob], where: Machines, options: list[str], more: list[str], again: str
) -> int:
    """Run Snakemake, for noise that is out of date first, for it decides what is trained; return its exit status."""
    from dpfl.pipeline.plan import run_progress
    from dpfl.pipeline.run import engine_options
    from dpfl.pipeline.run import run as run_workflow
    from dpfl.pipeline.status import noise_made_anew, without_finished

    engine, results = engine_options([*options, *more]), configuration.results_folder(resolved)
    if not engine.only_asks:
        unchanged.forget("run", resolved["scale"])
    asked = {"again": again, "results": results, "jobs": jobs, "forced": lambda: _forced(jobs, results, where)}
    if noise := noise_made_anew(resolved):
        print(f"dpfl: {_first(noise)}", file=sys.stderr)
        if not engine.only_asks:
            # Targets come before the user's options, which may take any number of words.
            words = [*options, *map(str, noise), *(word for word in more if word not in engine.targets)]
            if status := run_workflow(words, **asked, what="calibrating"):
                return status
    left = without_finished(more, resolved)
    if left is None:
        return 0
    progress = None if engine.only_asks else run_progress(resolved, where)
    return run_workflow([*options, *left], **asked, progress=progress)


def _forced(jobs: list[TrainingJob], results: Path, where: Machines) -> list[str]:
    """Return the option that has Snakemake make what is open now: batches too, as common.smk divides it."""
    from dpfl.provenance.run_identity import is_finished

    still_open = [job for job in jobs if where.side_by_side > 1 and not is_finished(job, results)]
    batched, _ = where.jobs(still_open)
    return ["--forcerun", *MADE_WHERE_ASKED, *(batch.rule for batch in batched)]


def _first(noise: list[Path]) -> str:
    """Return the line on noise that is out of date."""
    again = "runs whose noise then differs by more than a millionth are trained again"
    return f"calibrated anew first: {', '.join(map(str, noise))}; {again}"


@app.command(epilog="Example: dpfl status --scale demo", rich_help_panel=DAILY)
def status(
    scale: Annotated[str | None, typer.Option("--scale", help="demo, quick or paper, as it was last run")] = None,
    config: OverlayOption = None,
) -> None:
    """Show which stages are done; which jobs run, wait, failed or can be resumed; and the time left."""
    from dpfl.pipeline.status import lines

    _require_here(config or DEFAULT_CONFIG)
    resolved = configuration.overlaid(DEFAULT_CONFIG, config, scale)  # refuses a scale that does not exist
    source = f"{config} over {DEFAULT_CONFIG}" if config else str(DEFAULT_CONFIG)
    last = configuration.results_folder(resolved) / "config.yaml"
    if scale and config is None and last.is_file():
        resolved, source = configuration.read(last), str(last)
    print(f"scale {resolved['scale']} ({source}):")
    for line in lines(resolved):
        print(line)


def _require_here(config: Path) -> None:
    """Raise InputError where this folder is no project, or the configuration that of another: its results are not here.

    In a folder without results every finished run would be said not to have begun.
    """
    here, place = Path.cwd(), config.resolve().parent
    root = next((folder for folder in (place, *place.parents) if (folder / "Snakefile").is_file()), None)
    if root is not None and root != here.resolve():
        raise InputError(f"{config} is of the project in {root}: run dpfl status there")
    _require_project("status")


def _require_project(command: str) -> None:
    """Raise InputError where this folder is no project."""
    if not Path("Snakefile").is_file():
        raise InputError(f"no Snakefile here: run dpfl {command} in the folder of the project")


@app.command(epilog="Example: dpfl gpu", rich_help_panel=STAGES)
def gpu() -> None:
    """Print the GPUs that torch can use; exit 2 if there is none."""
    import torch

    from dpfl.gpu import require

    require()
    for number in range(torch.cuda.device_count()):
        print(torch.cuda.get_device_name(number))
