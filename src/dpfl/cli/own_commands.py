"""Train one's own model on one's own data, privately and federated: `dpfl fedavg`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpfl import __version__, gpu
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.cli.app import DAILY, app
from dpfl.errors import InputError
from dpfl.files import record_path, replacing, write_atomically
from dpfl.progress import progress_bar
from dpfl.provenance.record import StageRecorder

if TYPE_CHECKING:  # torch is slow to import
    from dpfl.data.own_arrays import OwnData
    from dpfl.images.own_federation import OwnFederationSettings, OwnModel, OwnRun

EXAMPLE = (
    "dpfl fedavg --data my.npz --model my_module:Net --clients 10 --partition dirichlet:0.5 --rounds 20 --epsilon 3 "
    "--delta 1e-5 --out my_run"
)
_NOTES = (
    "The epsilon holds for each record of each client, as long as the seed is secret. runs.csv and its record name the "
    "seed: do not publish them with a model whose records must stay private.",
    "Public are each client's number of records, and which client holds which records.",
    "Accuracies are measured on the test records without noise. The epsilon does not cover these records.",
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
    sampler: Annotated[
        str, typer.Option("--sampler", help=", ".join(each for each in Sampling if each != Sampling.WITH_REPLACEMENT))
    ] = "poisson",
    local_epochs: Annotated[int, typer.Option("--local-epochs", help="of each round")] = 1,
    batch_size: Annotated[int, typer.Option("--batch-size", help="expected; a full batch has all records")] = 64,
    clip_norm: Annotated[float, typer.Option("--clip-norm", help="of a record's gradient; inf clips nothing")] = 1.0,
    learning_rate: Annotated[float, typer.Option("--learning-rate")] = 0.1,
    momentum: Annotated[float, typer.Option("--momentum")] = 0.0,
    neighbouring: Annotated[
        str, typer.Option("--neighbouring", help=f"{Neighbouring.ZERO_OUT} or {Neighbouring.REPLACE_ONE}")
    ] = "zero_out",
    seed: Annotated[int, typer.Option("--seed", help="keep it secret where the records are")] = 0,
    device: Annotated[str, typer.Option("--device", help="cpu or cuda")] = "cpu",
    threads: Annotated[int, typer.Option("--threads")] = 1,
    memory_gb: Annotated[float, typer.Option("--memory-gb", help="for gradients")] = 1.0,
) -> None:
    """Train your own torch module on your own data by federated averaging with DP-SGD, and state its privacy.

    Writes runs.csv (a row, with accuracy by round), clients.csv (a row for each client), privacy.md, model.pt and a
    record of all inputs. An interrupted run goes on from its checkpoint.
    """
    given = {name: value for name, value in locals().items() if name not in ("data", "model", "out")}
    if device not in ("cpu", "cuda"):
        raise InputError(f"--device is {device}; it must be cpu or cuda")
    if (out / "runs.csv").exists():
        raise InputError(f"{out} has a finished run: name another folder")
    from dpfl.pipeline.devices import own_gpu

    with own_gpu(device == "cuda"):
        if device == "cuda":
            gpu.prepare()
        _fedavg(data, model, out, given)


def _fedavg(path: Path, import_path: str, out: Path, given: dict[str, Any]) -> None:
    """Train on a device that is held, and write what the run gives."""
    import torch

    from dpfl.data.own_arrays import read
    from dpfl.images.own_federation import OwnFederationSettings, load_model, statements, train
    from dpfl.reporting.results import write_table

    settings = OwnFederationSettings.of(given)
    code = ("dpfl.images.own_federation",)
    recorded = {"data": path.name, "model": import_path, **given}
    stage = StageRecorder("fedavg", code, recorded, (settings.seed,), settings.device, settings.threads)
    data, model = read(path), load_model(import_path, settings.seed)
    stage.settings |= {"data_sha256": data.sha256, "model_source_sha256": model.source_sha256}
    shares = settings.shares(data.train_y)
    with progress_bar("noise", unit="clients") as progress:
        known = statements(settings, [len(share) for share in shares], progress)
    checkpoint = out / "checkpoint"
    with progress_bar(f"fedavg {data.name}", unit="epochs") as progress:
        run = train(data, model, settings, shares, known, checkpoint, progress)
    buffer = io.BytesIO()
    torch.save(run.weights, buffer)
    names = ("clients.csv", "privacy.md", "model.pt", "runs.csv")  # the last one says that the run is finished
    outputs = [out / name for name in names]
    write_table(run.clients, outputs[0])
    write_atomically(outputs[1], _page(data, model, settings, run))
    with replacing(outputs[2]) as temporary:
        temporary.write_bytes(buffer.getvalue())
    write_table(run.runs, outputs[3])
    stage.write(record_path(outputs[3]), outputs)
    checkpoint.unlink(missing_ok=True)
    print(outputs[1].read_text(encoding="utf-8"))


def _page(data: OwnData, model: OwnModel, settings: OwnFederationSettings, run: OwnRun) -> str:
    """Return the privacy card of a run."""
    from dpfl.reporting.privacy_card import card, statement_facts

    [row], clients = run.runs.to_dict("records"), run.clients
    sizes = clients["records"]
    counts = f"{len(data.train_y)} training and {len(data.test_y)} test records"
    rounds = f"{settings.rounds} rounds of {settings.local_epochs} local epochs, every client weighs the same"
    steps = f"learning rate {settings.learning_rate:g}, momentum {settings.momentum:g}"
    facts = {
        "Data": f"{data.name}: {data.classes} classes, {counts}; SHA-256 {data.sha256}",
        "Clients": f"{settings.clients}, divided by {settings.partition}; {sizes.min()} to {sizes.max()} records each",
        "Model": f"{model.path}: {len(model.initial)} parameters; SHA-256 of its source {model.source_sha256 or '-'}",
        "Training": f"federated averaging: {rounds}; {steps}",
        "Accuracy": f"{row['accuracy_pct']:.2f} % of the test records after the last round ({row['status']})",
        **statement_facts(row, settings.epsilon),
        "Cite": f"dpfl {__version__} (commit and versions: runs.csv.record.json); DP-SGD: {_DPSGD}",
    }
    notes = list(_NOTES)
    if sizes.nunique() > 1 and row["noise_multiplier"]:
        noise = clients["privacy_noise_multiplier"]
        notes.insert(0, f"{_WEAKEST} Noise multipliers are {noise.min():.6g} to {noise.max():.6g}.")
    if row["noise_multiplier"] and settings.delta * sizes.max() >= 1:
        notes.insert(0, f"delta is not below 1/{sizes.max()}: to publish one record in clear would be as private.")
    return card("Privacy of this run", facts, notes)
