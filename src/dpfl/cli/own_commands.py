"""Train one's own model on one's own data, privately and federated: `dpfl fedavg`."""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpfl import __version__, gpu
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.sampling_keys import Sampling
from dpfl.cli.app import DAILY, app
from dpfl.errors import InputError, printable
from dpfl.files import read_bytes, record_path, replacing, require_writable, write_atomically
from dpfl.pipeline.lock import alone_in
from dpfl.progress import progress_bar
from dpfl.provenance.record import StageRecorder

if TYPE_CHECKING:  # torch and pandas are slow to import
    from dpfl.data.own_arrays import OwnData
    from dpfl.images.own_federation import OwnFederationSettings, OwnModel, OwnRun

EXAMPLE = (
    "dpfl fedavg --data my.npz --model my_module:Net --clients 10 --partition dirichlet:0.5 --rounds 20 --epsilon 3 "
    "--delta 1e-5 --out my_run"
)
SEED_BITS = 128
"""Bits of a seed that is drawn: as many as every address of randomness keeps."""
_LONGEST_JSON_INTEGER = 1 << 63
_RECORD = "runs.csv.record.json"

# The privacy card.

_SECRET = f"The seed is secret: it was drawn for this run, and {_RECORD} alone has it."
_NAMED = "The seed was named by --seed. Without --seed a secret one is drawn."
_CONDITION = (
    "**Anyone who knows or guesses the seed can draw the noise again and subtract it: against them there is no privacy,"
    " and no epsilon below holds.**"
)
_NO_NOISE = "**No noise was added: there is no privacy. Whatever is published of this run may reveal records.**"
_PUBLISHABLE = (
    "You may publish privacy.md, clients.csv and model.pt. Of the training records they hold the model, which the "
    "epsilon covers, and each client's number of records, which is public under the neighbouring relation."
)
_OWNERS = (
    f"Never publish {_RECORD}, which has the seed and a hash of the data: anyone who knows all records but one finds "
    "that one by the hash. Nor runs.csv, which has a named seed and the accuracy after every round."
)
_NOTES = (
    "The epsilon holds for each record of each client, against all who do not know the seed.",
    "The epsilon is that of one run. To try other settings on the same records spends more.",
)
_WEAKEST = (
    "The facts of privacy are those of the client with the largest proven epsilon; clients.csv has every client's."
)
_DPSGD = "https://arxiv.org/abs/1607.00133"


@app.command(epilog=f"Example: {EXAMPLE}", rich_help_panel=DAILY)
def fedavg(
    data: Annotated[
        Path, typer.Option("--data", help="an .npz file, or a folder with a subfolder of images for each class")
    ],
    model: Annotated[str, typer.Option("--model", help="import path of a torch module, as my_module:Net")],
    clients: Annotated[int, typer.Option("--clients")],
    rounds: Annotated[int, typer.Option("--rounds")],
    delta: Annotated[float, typer.Option("--delta")],
    out: Annotated[Path, typer.Option("--out", help="a folder for what the run gives")],
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="of each record; inf is no privacy")] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option("--noise-multiplier", help="noise std over the clip norm; else the least for --epsilon"),
    ] = None,
    partition: Annotated[
        str, typer.Option("--partition", help="even, shards:<number> of labels a client, dirichlet:<parameter>")
    ] = "even",
    sampler: Annotated[str, typer.Option("--sampler", help=", ".join(Sampling))] = "poisson",
    local_epochs: Annotated[int, typer.Option("--local-epochs", help="of each round")] = 1,
    batch_size: Annotated[int, typer.Option("--batch-size", help="expected; a full batch has all records")] = 64,
    clip_norm: Annotated[float, typer.Option("--clip-norm", help="of a record's gradient; inf clips nothing")] = 1.0,
    learning_rate: Annotated[float, typer.Option("--learning-rate")] = 0.1,
    momentum: Annotated[float, typer.Option("--momentum")] = 0.0,
    neighbouring: Annotated[
        str, typer.Option("--neighbouring", help=f"{Neighbouring.ZERO_OUT} or {Neighbouring.REPLACE_ONE}")
    ] = "zero_out",
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="of a run that others may repeat, without privacy from them; else a secret one"),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu or cuda")] = "cpu",
    threads: Annotated[int, typer.Option("--threads")] = 1,
    memory_gb: Annotated[float, typer.Option("--memory-gb", help="for gradients")] = 1.0,
) -> None:
    """Train your own torch module on your own data by federated averaging with DP-SGD, and state its privacy.

    Writes privacy.md, clients.csv (a row for each client) and model.pt, which you may publish, and, for yourself alone,
    runs.csv (a row, with accuracy by round) and a record of all inputs, which has the seed. An interrupted run goes on
    from its checkpoint, with its seed.
    """
    given = {name: value for name, value in locals().items() if name not in ("data", "model", "out")}
    if device not in ("cpu", "cuda"):
        raise InputError(f"--device is {device}; it must be cpu or cuda")
    _require_unfinished(out)
    if os.path.relpath(out).startswith(".."):
        raise InputError(
            f"{out} is outside the folder where you are, from which its record names files: name one in it"
        )
    require_writable(out)
    from dpfl.pipeline.devices import own_gpu

    with own_gpu(device == "cuda"):
        if device == "cuda":
            gpu.prepare()
        _fedavg(data, model, out, given)


def _require_unfinished(out: Path) -> None:
    """Raise InputError where a folder has a finished run."""
    if record_path(out / "runs.csv").exists():
        raise InputError(f"{out} has a finished run: name another folder")


def _fedavg(path: Path, import_path: str, out: Path, given: dict[str, Any]) -> None:
    """Train on a device that is held, and write what the run gives."""
    import torch

    from dpfl.data.own_arrays import read
    from dpfl.images.own_federation import OwnFederationSettings, check, load_model, statements, train
    from dpfl.reporting.results import write_table

    seed_file, is_secret, owner = out / "secret_seed", given["seed"] is None, None
    decides = [import_path, {name: value for name, value in given.items() if name not in _RESOURCES}]
    if not is_secret and seed_file.exists():
        raise InputError(f"{out} has an interrupted run with a secret seed: leave out --seed, or name another folder")
    if is_secret:
        seed, owner = _secret_seed(seed_file)
        given = given | {"seed": seed}
    settings = OwnFederationSettings.of(given)
    code = ("dpfl.images.own_federation",)
    # Records hold integers of 64 bits; longer ones are a text.
    seed = settings.seed if settings.seed < _LONGEST_JSON_INTEGER else str(settings.seed)
    recorded = {"data": printable(path.name), "model": import_path, **given, "seed": seed}
    seeds = () if isinstance(seed, str) else (seed,)
    stage = StageRecorder("fedavg", code, recorded, seeds, settings.device, settings.threads)
    data, model = read(path), load_model(import_path, settings.seed)
    check(data, model, settings)
    decides += [data.sha256, model.source_sha256]
    identity = hashlib.sha256(json.dumps(decides).encode()).hexdigest()
    if owner not in (None, identity):  # noise of one seed under two runs would cancel out
        raise InputError(
            f"{seed_file} is of an interrupted run with other settings, data or model: name another folder"
        )
    stage.settings |= {"data_sha256": data.sha256, "model_source_sha256": model.source_sha256}
    shares = settings.shares(data.train_y)
    with progress_bar("noise", unit="clients") as progress:
        known = statements(settings, [len(share) for share in shares], progress)
    out.mkdir(parents=True, exist_ok=True)
    with alone_in(out):
        _require_unfinished(out)  # since the first look
        checkpoint = out / "checkpoint"
        if owner is None and seed_file.exists():
            raise InputError(f"another run began in {out} at the same time: name another folder")
        if is_secret:
            _keep_seed(seed_file, settings.seed, identity)
        with progress_bar(f"fedavg {data.name}", unit="epochs") as progress:
            run = train(data, model, settings, shares, known, checkpoint, progress)
        buffer = io.BytesIO()
        torch.save(run.weights, buffer)
        names = ("clients.csv", "privacy.md", "model.pt", "runs.csv")
        outputs = [out / name for name in names]
        write_table(run.clients, outputs[0])
        write_atomically(outputs[1], _page(data, model, settings, run, is_secret))
        with replacing(outputs[2]) as temporary:
            temporary.write_bytes(buffer.getvalue())
        write_table(run.runs.assign(seed="secret") if is_secret else run.runs, outputs[3])
        usual = os.umask(0o777 - _OWNER_ONLY)  # the record has the seed: nobody else may read it, at no time
        try:
            stage.write(record_path(outputs[3]), outputs)  # it says that the run is finished
        finally:
            os.umask(usual)
        for left in (checkpoint, seed_file):
            left.unlink(missing_ok=True)
    print(outputs[1].read_text(encoding="utf-8"))


_OWNER_ONLY = 0o600
_EXACT = "{:.6g}"
_RESOURCES = ("seed", "device", "threads", "memory_gb")
"""Settings with which an interrupted run may go on that began with others; its seed is its own."""


def _secret_seed(file: Path) -> tuple[int, str | None]:
    """Return the seed of the interrupted run that left `file`, and its identity; else a new seed, and None.

    Raises InputError for a file that holds no seed.
    """
    if not file.exists():
        return secrets.randbits(SEED_BITS), None
    seed, _, identity = read_bytes(file, 1024).decode("ascii", errors="replace").strip().partition("\n")
    if not (seed.isdigit() and int(seed) < 1 << SEED_BITS):
        raise InputError(f"{file} holds no seed: delete it, and the run starts afresh")
    return int(seed), identity


def _keep_seed(file: Path, seed: int, identity: str) -> None:
    """Write a secret seed for the run of this identity to go on with, readable by its owner alone."""
    with replacing(file) as temporary:
        temporary.touch(_OWNER_ONLY)
        temporary.write_text(f"{seed}\n{identity}\n", encoding="ascii")


def _page(data: OwnData, model: OwnModel, settings: OwnFederationSettings, run: OwnRun, is_secret: bool) -> str:
    """Return the privacy card of a run. It may be published: of the training records it has their numbers alone."""
    from dpfl.reporting.display_names import span
    from dpfl.reporting.privacy_card import card, statement_facts

    [row], clients = run.runs.to_dict("records"), run.clients
    sizes = clients["records"]
    spare = len(data.train_y) - sizes.sum()
    left_out = f"; training records without a client, so unused: {spare}" if spare else ""
    counts = f"{len(data.train_y)} training and {len(data.test_y)} test records"
    rounds = f"{settings.rounds} rounds of {settings.local_epochs} local epochs, every client weighs the same"
    is_full = settings.sampler == Sampling.FULL
    batches = "all records in each step" if is_full else f"batches of {settings.batch_size} records"
    steps = f"{batches}, learning rate {settings.learning_rate:g}, momentum {settings.momentum:g}"
    facts = {
        "Data": f"{data.name}: {counts}",
        "Clients": f"{settings.clients}, divided by {settings.partition}; {span(sizes, _EXACT)} records each{left_out}",
        "Model": f"{model.path}: {len(model.initial)} parameters; SHA-256 of its source {model.source_sha256 or '-'}",
        "Training": f"federated averaging: {rounds}; {steps}",
        "Accuracy": f"{row['accuracy_pct']:.2f} % of the test records after the last round ({row['status']})",
        **statement_facts(row, settings.epsilon),
        "Cite": f"dpfl {__version__}; DP-SGD: {_DPSGD}",
    }
    notes = [*([_PUBLISHABLE] if settings.private else []), _OWNERS, _test_note(data)]
    if settings.batch_size > sizes.min() and settings.sampler not in (Sampling.FULL, Sampling.WITH_REPLACEMENT):
        notes.append(f"Clients with fewer than {settings.batch_size} records take all of them in each step.")
    if not settings.partition.startswith("even"):
        notes.append(
            "The clients were divided by labels. The epsilon takes the division as given, and does not cover what the "
            "clients' numbers of records reveal of labels."
        )
    notes += _NOTES if settings.private else ()
    if sizes.nunique() > 1 and row["noise_multiplier"]:
        noise = clients["privacy_noise_multiplier"]
        notes.insert(0, f"{_WEAKEST} The noise multiplier of a client is {span(noise, _EXACT)}.")
    if row["noise_multiplier"] and settings.delta * sizes.max() >= 1:
        notes.insert(0, f"delta is not below 1/{sizes.max()}: to publish one record in clear would be as private.")
    condition = f"{_SECRET if is_secret else _NAMED} {_CONDITION}" if settings.private else _NO_NOISE
    return card("Privacy of this run", facts, notes, condition=condition)


def _test_note(data: OwnData) -> str:
    """Return whose records the accuracy is of."""
    whose = f"a fifth of the records of {data.name}, held back" if data.held_back else f"the records of {data.name}"
    return (
        f"The accuracy is exact, on the test records: {whose}. The model was not trained on them, and the epsilon "
        "does not cover them: ask their owners, or delete the accuracy from this card before you publish it."
    )
