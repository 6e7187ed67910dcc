"""`dpfl fedavg` as the how-to page has it: what it writes, and what it refuses without writing anything."""

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from dpfl.accounting import BallsInBins, guarantee
from dpfl.cli import app
from dpfl.data.own_arrays import read
from dpfl.errors import InputError
from dpfl.provenance.record import read_record
from dpfl.reporting.results import read_csv

WRITTEN = ("clients.csv", "model.pt", "privacy.md", "runs.csv")


@pytest.fixture
def example(repository, tmp_path, monkeypatch):
    """The words of the page's command, in a folder in which its data and model were made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    page = (repository / "docs" / "howto" / "own_data.md").read_text(encoding="utf-8")
    [python], [shell] = (
        re.findall(rf"^```{kind}\n(.*?)^```", page, re.MULTILINE | re.DOTALL) for kind in ("python", "sh")
    )
    exec(python, {})
    yield shlex.split(shell.replace("\\\n", " "))[1:]
    sys.modules.pop("my_module", None)


def changed(words, **others):
    """Return the command with other values for some options; None leaves an option out."""
    given = dict(zip(words[1::2], words[2::2], strict=True))
    given |= {f"--{name.replace('_', '-')}": value for name, value in others.items()}
    return [words[0], *(word for pair in given.items() if pair[1] is not None for word in pair)]


def facts(card):
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in card.splitlines() if line[:2] == "| "]
    return dict(rows)


def test_the_page_s_example_trains_states_its_privacy_and_repeats(example):
    done = CliRunner().invoke(app, example)
    assert done.exit_code == 0, done.exception
    out, data = Path("my_run"), read(Path("my.npz"))
    assert sorted(path.name for path in out.iterdir()) == sorted([*WRITTEN, "runs.csv.record.json"])
    [row], clients = read_csv(out / "runs.csv").to_dict("records"), read_csv(out / "clients.csv")
    by_round = json.loads(row["accuracy_pct_by_round"])
    assert len(by_round) == 10 and by_round[-1] == row["accuracy_pct"] > 40  # ten digits: chance is 10 %

    # The model that was saved is the one that was measured.
    module = sys.modules["my_module"].Net()
    module.load_state_dict(torch.load(out / "model.pt", weights_only=True))
    with torch.no_grad():
        right = module(torch.from_numpy(data.test_x)).argmax(1).numpy() == data.test_y
    assert 100 * right.mean() == pytest.approx(row["accuracy_pct"])

    # The card states the weakest client's epsilon, each client its own.
    assert len(clients) == 10 and clients["records"].sum() == len(data.train_y)
    for own in clients[:3].itertuples():
        steps = -(-own.records // 32)
        bound = guarantee(BallsInBins(steps), noise_multiplier=1.5, steps=10 * steps, delta=1e-5)
        assert own.privacy_epsilon_proven == pytest.approx(bound.upper, rel=1e-9)
    assert row["privacy_epsilon_proven"] == clients["privacy_epsilon_proven"].max()
    card = facts((out / "privacy.md").read_text())
    assert float(re.match(r"at most ([\d.]+),", card["epsilon, proven"])[1]) >= row["privacy_epsilon_proven"]
    assert float(re.match(r"at least ([\d.]+),", card["epsilon, exceeded"])[1]) <= row["privacy_epsilon_refuted"]
    assert card["epsilon, claimed"] == "none" and card["Neighbouring data"].startswith("zero out: one record's")
    assert "clip norm 1; noise multiplier 1.5" in card["Mechanism"] and "balls in bins" in card["Sampler"]
    assert (
        data.sha256 in card["Data"] and f"{clients['records'].min()} to {clients['records'].max()}" in card["Clients"]
    )

    record = read_record(out / "runs.csv.record.json")
    assert record["settings"]["data_sha256"] == data.sha256 and len(record["settings"]["model_source_sha256"]) == 64
    assert {Path(each["path"]).name for each in record["outputs"]} == set(WRITTEN)

    with pytest.raises(InputError, match="my_run has a finished run"):
        raise CliRunner().invoke(app, example).exception
    again = CliRunner().invoke(app, changed(example, out="again"))
    assert again.exit_code == 0, again.exception
    assert all((out / name).read_bytes() == Path("again", name).read_bytes() for name in WRITTEN)


@pytest.mark.parametrize(("claimed", "verdict"), [("1000", "proven"), ("0.5", "refuted"), ("inf", None)])
def test_a_claim_is_judged_by_the_noise_that_was_added(example, claimed, verdict):
    words = changed(example, epsilon=claimed, rounds="1", sampler="full_batch", partition="even")
    if verdict is None:
        words = changed(words, noise_multiplier=None)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    card = facts(Path("my_run/privacy.md").read_text())
    assert card["epsilon, claimed"] == (f"{claimed} ({verdict})" if verdict else "none")
    assert (card["Mechanism"] == "no noise: no privacy; clip norm 1") == (verdict is None)
    assert (card["epsilon, proven"] == "none") == (verdict is None)


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ({"data": "other.npz"}, "other.npz is not there"),
        ({"model": "my_module:Other"}, "my_module:Other cannot be imported: AttributeError"),
        ({"partition": "dirichlet:0.001"}, "leaves client"),
        ({"device": "tpu"}, "--device is tpu; it must be cpu or cuda"),
        ({"memory_gb": "1e-9"}, "memory_gb: one record's gradient needs"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(example, others, named):
    done = CliRunner().invoke(app, changed(example, **others))
    assert isinstance(done.exception, InputError) and named in str(done.exception), done.exception
    assert "\n" not in str(done.exception) and not Path("my_run").exists()


def test_images_in_folders_train_a_convolution(tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    draw = np.random.default_rng(0)
    for label, name in enumerate(("dark", "light")):
        Path("photos", name).mkdir(parents=True)
        for number in range(20):
            pixels = draw.integers(100 * label, 100 * label + 100, (6, 6, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(f"photos/{name}/{number}.png")
    Path("photo_nets.py").write_text(
        "from torch import nn\nclass Net(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(nn.Conv2d(3, 4, 3), nn.GELU(), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 2))\n"
    )
    words = "fedavg --data photos --model photo_nets:Net --clients 2 --rounds 3 --delta 1e-3 --noise-multiplier 0.5"
    done = CliRunner().invoke(app, [*words.split(), "--batch-size", "8", "--learning-rate", "0.5", "--out", "run"])
    assert done.exit_code == 0, done.exception
    assert read_csv(Path("run/runs.csv"))["accuracy_pct"][0] > 80
    sys.modules.pop("photo_nets")
