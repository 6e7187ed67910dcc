"""Check the claims of others: files of claims, and logs of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpfl.accounting.neighbouring import Neighbouring, Observer
from dpfl.accounting.sampling_keys import Sampling
from dpfl.cli.app import CHECKING, app
from dpfl.errors import InputError, printable
from dpfl.files import read_given_json
from dpfl.reporting.display_names import at_least, at_most

if TYPE_CHECKING:
    from dpfl.accounting.external_claims import Claim, Entry

_LARGEST_FILE = 1 << 25
"""Bytes of claims or a log: a million steps, one a row."""
_OF_A_LOG = ("sampler", "delta", "claimed_epsilon")
_MOST_NAMED = 4
"""Phases that are named one by one."""
_CHECKPOINTS = (".pth", ".pt", ".ckpt", ".pkl", ".npz")
_STATE_AS_JSON = "write the state alone, as json.dumps(engine.accountant.state_dict()), to a .json file"


@app.command(
    epilog="Example: dpfl check claims.json; dpfl check log.csv --sampler poisson --delta 1e-5 --claimed-epsilon 3",
    rich_help_panel=CHECKING,
)
def check(
    file: Annotated[Path, typer.Argument(help="claims (JSON, dpfl-claims/1), or a run's log (.csv, .jsonl, .json)")],
    sampler: Annotated[str | None, typer.Option(help=f"of a log: {', '.join(Sampling)}")] = None,
    delta: Annotated[float | None, typer.Option(help="of a log")] = None,
    claimed_epsilon: Annotated[float | None, typer.Option(help="of a log")] = None,
    batch_size: Annotated[int | None, typer.Option(help="of a log, for fixed and shuffled batches")] = None,
    records: Annotated[int | None, typer.Option(help="of a log, for fixed and shuffled batches")] = None,
    steps_per_epoch: Annotated[int | None, typer.Option(help="of a log, for balls_in_bins")] = None,
    neighbouring: Annotated[
        str | None, typer.Option(help=f"of a log, else zero_out: {', '.join(Neighbouring)}")
    ] = None,
    observer: Annotated[str | None, typer.Option(help=f"of a log, else every_step: {', '.join(Observer)}")] = None,
    steps_per_row: Annotated[int | None, typer.Option(help="of a log without num_steps")] = None,
    num_steps: Annotated[str | None, typer.Option(help="of a log: num_steps is per_row or cumulative")] = None,
) -> None:
    """Print for each claim of a file whether it is proven, refuted or unproven, and why; 1 if any is refuted."""
    from dpfl.accounting.external_claims import ClaimVerdict
    from dpfl.accounting.external_claims import check as verdict_on

    options = {
        "sampler": sampler, "delta": delta, "claimed_epsilon": claimed_epsilon, "batch_size": batch_size,
        "records": records, "steps_per_epoch": steps_per_epoch, "neighbouring": neighbouring, "observer": observer,
        "steps_per_row": steps_per_row, "num_steps": num_steps,
    }  # fmt: skip
    refuted = False
    claims = _claims(file, {name: value for name, value in options.items() if value is not None})
    typer.echo("claim | sampler | steps | neighbouring | observer | claimed | verdict | proven | at least | why")
    for claim in claims:
        try:
            found = verdict_on(claim)
        except ValueError as problem:
            raise InputError(f"{file}, claim {claim.name}: {problem}") from problem
        cells = [
            printable(claim.name).replace("|", r"\x7c"),
            _drawn(claim),
            str(sum(int(phase.steps) for phase in claim.phases)),
            str(claim.neighbouring),
            str(claim.observer),
            f"{claim.epsilon:.6g}",
        ]
        cells += [found.verdict, at_most(found.guarantee.upper, 6), at_least(found.guarantee.lower, 6), found.why]
        typer.echo(" | ".join(cells))
        refuted |= found.verdict is ClaimVerdict.REFUTED
    if refuted:
        raise typer.Exit(1)


def _claims(file: Path, options: dict[str, str | float]) -> list[Claim]:
    """Read the claims of a file, or the one of a log and the options. Raises InputError."""
    from dpfl.accounting.external_claims import claims_of, history_of, read_rows

    if file.exists() and not file.is_file():
        raise InputError(f"{file} is a folder or no regular file")  # a pipe could be waited for without end
    if file.exists() and file.stat().st_size > _LARGEST_FILE:
        raise InputError(f"{file} has {file.stat().st_size} bytes: claims and logs have at most {_LARGEST_FILE}")
    counts = {name: options.pop(name) for name in ("steps_per_row", "num_steps") if name in options}
    if file.suffix in (".csv", ".jsonl"):
        return [_logged(file, read_rows(file, **counts), options)]
    if file.suffix in _CHECKPOINTS:
        raise InputError(f"{file} is a checkpoint, not text: {_STATE_AS_JSON}")
    content = read_given_json(file, "JSON file that can be used", _LARGEST_FILE)
    if isinstance(content, dict) and "history" in content:
        if "steps_per_row" in counts:
            raise InputError(f"{file} is an accountant's state, which has num_steps: leave out --steps-per-row")
        return [_logged(file, history_of(content, file, **counts), options)]
    if isinstance(content, dict) and "schema" not in content:
        for key, inner in content.items():
            if isinstance(inner, dict) and "history" in inner:
                raise InputError(f"{file} has an accountant's state within {printable(key)!r}: {_STATE_AS_JSON}")
    if isinstance(content, dict) and "schema" in content and (options or counts):
        raise InputError(
            f"{file} is not a log: its claims say all themselves; leave out --{_option(min({**options, **counts}))}"
        )
    return claims_of(content, file)


def _logged(file: Path, history: list[Entry], options: dict[str, str | float]) -> Claim:
    """Return the claim that the options make about a log. Raises InputError."""
    from dpfl.accounting.external_claims import Claim, phases_on, poisson_phases, sampler_named

    missing = [f"--{_option(name)}" for name in _OF_A_LOG if name not in options]
    if missing:
        raise InputError(f"{file} is a run's log, which does not say {' and '.join(missing)}: give the option")
    name, delta, epsilon = (options.pop(each) for each in _OF_A_LOG)
    relation = {each: options.pop(each) for each in ("neighbouring", "observer") if each in options}
    try:
        if name == Sampling.POISSON and not options:
            phases = poisson_phases(history)
        elif name == Sampling.POISSON:
            raise ValueError(f"sampler poisson takes its rate from the log; leave out --{_option(min(options))}")
        else:
            phases = phases_on(sampler_named(name, **options), history)
        return Claim(file.name, phases, delta, epsilon, **relation)
    except ValueError as problem:
        raise InputError(f"{file}: {problem}") from None


def _option(name: str) -> str:
    """Return a name as an option has it."""
    return name.replace("_", "-")


def _drawn(claim: Claim) -> str:
    """Return the samplers of a claim, in the order of its phases, equal neighbours once; many phases are counted."""
    names = [str(phase.sampler) for phase in claim.phases]
    if len(names) > _MOST_NAMED:
        kinds = len({phase[:2] for phase in claim.phases})
        return f"{len(names)} phases, {kinds} kind{'s' * (kinds > 1)}"
    return ", then ".join(name for at, name in enumerate(names) if at == 0 or name != names[at - 1])
