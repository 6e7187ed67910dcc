"""`dpfl fedavg` as the how-to page has it: what it writes, and what it refuses without writing anything."""

import json
import re
import secrets
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
from dpfl.engine import checkpoints
from dpfl.errors import InputError
from dpfl.images import own_federation
from dpfl.pipeline import lock
from dpfl.provenance.record import StageRecorder, read_record
from dpfl.reporting.results import read_csv

PUBLISHABLE = ("clients.csv", "model.pt", "privacy.md")
WRITTEN = (*PUBLISHABLE, "runs.csv")
DRAWN = 0x9E3779B97F4A7C15F39CC0605CEDC834
"""The secret seed of the tests that want the same numbers each time."""


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


def run(words):
    """Run the command; return its folder."""
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    return Path(words[words.index("--out") + 1])


def recorded_seed(out):
    return read_record(out / "runs.csv.record.json")["settings"]["seed"]


def facts(card):
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in card.splitlines() if line[:2] == "| "]
    return dict(rows)


def test_the_page_s_example_trains_states_its_privacy_and_repeats(example, monkeypatch):
    monkeypatch.setattr(secrets, "randbits", {128: DRAWN}.get)
    out, data = run(example), read(Path("my.npz"))
    assert out == Path("my_run")
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
    assert f"{clients['records'].min()} to {clients['records'].max()}" in card["Clients"]

    record = read_record(out / "runs.csv.record.json")
    assert record["settings"]["data_sha256"] == data.sha256 and len(record["settings"]["model_source_sha256"]) == 64
    assert {Path(each["path"]).name for each in record["outputs"]} == set(WRITTEN)

    with pytest.raises(InputError, match="my_run has a finished run"):
        raise CliRunner().invoke(app, example).exception
    again = run(changed(example, out="again"))
    assert all((out / name).read_bytes() == (again / name).read_bytes() for name in WRITTEN)


SHORT = {"rounds": "2", "clients": "3", "partition": "even", "batch_size": "500"}


def test_what_may_be_published_tells_no_label_of_a_training_record(example):
    """Runs that differ in the label of one training record, the only one of its class, publish the same but a model."""
    pixels, labels = (read(Path("my.npz")).train_x, read(Path("my.npz")).train_y % 9)
    found, hashes = [], []
    for folder, secret in (("nine", 9), ("zero", 0)):
        Path(folder).mkdir()
        mine = np.r_[secret, labels[1:300]]
        np.savez(f"{folder}/my.npz", train_x=pixels[:300], train_y=mine, test_x=pixels[300:], test_y=labels[300:])
        out = run(changed(example, **SHORT, data=f"{folder}/my.npz", out=f"{folder}/out", seed="5"))
        hashes.append(read(Path(folder, "my.npz")).sha256)
        found.append({name: (out / name).read_bytes() for name in PUBLISHABLE})
        assert not any(hashes[-1].encode() in content for content in found[-1].values())
        assert hashes[-1] in (out / "runs.csv.record.json").read_text()
        counts = json.dumps(np.bincount(mine).tolist())[1:-1].encode()
        assert not any(counts in content for content in found[-1].values())
        own = [name for name in read_csv(out / "clients.csv") if not name.startswith("privacy_")]
        assert own == ["client", "records"]
        found[-1]["privacy.md"] = re.sub(rb"\| Accuracy .*\n", b"", found[-1]["privacy.md"])
    assert hashes[0] != hashes[1] and found[0]["model.pt"] != found[1]["model.pt"]
    assert all(found[0][name] == found[1][name] for name in ("clients.csv", "privacy.md"))


def test_the_card_says_what_may_be_published_and_whose_accuracy_it_has(example):
    card = (run(changed(example, **SHORT)) / "privacy.md").read_text()
    assert "You may publish privacy.md, clients.csv and model.pt." in card
    assert "Never publish runs.csv.record.json" in card and "Nor runs.csv," in card
    assert "a fifth of the records of my.npz, held back" in card and "divided by labels" not in card
    with np.load("my.npz") as whole:
        x, y = whole["x"], whole["y"]
    np.savez("parts.npz", train_x=x[:900], train_y=y[:900], test_x=x[900:], test_y=y[900:])
    words = changed(example, **SHORT, data="parts.npz", out="parts")
    card = (run(changed(words, partition="shards:2")) / "privacy.md").read_text()
    assert "on the test records: the records of parts.npz" in card and "The clients were divided by labels." in card


def test_the_card_counts_the_records_that_equal_parts_leave_out(example):
    out = run(changed(example, **{**SHORT, "clients": "5"}))
    clients, card = read_csv(out / "clients.csv"), (out / "privacy.md").read_text()
    left_out = len(read(Path("my.npz")).train_y) - clients["records"].sum()
    assert set(clients["records"]) == {287} and left_out == 2
    said = "5, divided by even; 287 records each; training records without a client, so unused: 2"
    assert facts(card)["Clients"] == said
    assert "noise multiplier of a client" not in card


@pytest.mark.parametrize(
    ("sampler", "stated", "takes_all"),
    [
        ("poisson", "batches of 5000 records", True),
        ("with_replacement", "batches of 5000 records", False),
        ("full_batch", "all records in each step", False),
    ],
)
def test_the_card_says_if_a_batch_is_larger_than_a_client(example, sampler, stated, takes_all):
    """Slots filled with replacement leave records out; a full batch has no size that could be too large."""
    own = changed(
        example, sampler=sampler, batch_size="5000", rounds="1", out=f"of_{sampler}", neighbouring="replace_one"
    )
    own = changed(own, epsilon=None, noise_multiplier="5")
    card = (run(own) / "privacy.md").read_text()
    assert stated in facts(card)["Training"]
    assert ("Clients with fewer than 5000 records take all of them in each step." in card) is takes_all


def test_without_a_seed_a_secret_one_is_drawn_that_the_record_alone_has(example):
    words = changed(example, **SHORT)
    first, second = run(words), run(changed(words, out="second"))
    seeds = [recorded_seed(out) for out in (first, second)]
    assert seeds[0] != seeds[1] and all(2**96 < int(seed) < 2**128 for seed in seeds)  # less: chance 2^-31
    assert (first / "model.pt").read_bytes() != (second / "model.pt").read_bytes()
    assert sorted(path.name for path in first.iterdir()) == sorted([*WRITTEN, "runs.csv.record.json"])
    assert (first / "runs.csv.record.json").stat().st_mode & 0o077 == 0
    assert not any(seeds[0].encode() in (first / name).read_bytes() for name in WRITTEN)
    assert read_csv(first / "runs.csv")["seed"].tolist() == ["secret"]
    # Its owner can train it again.
    named = run(changed(words, out="named", seed=seeds[0]))
    assert all((first / name).read_bytes() == (named / name).read_bytes() for name in ("clients.csv", "model.pt"))


def test_a_run_that_is_interrupted_before_its_record_goes_on(example, monkeypatch):
    """The record is last, and nobody else may read it while it is written."""
    words, modes = changed(example, **SHORT), []

    def interrupted(self, path, outputs):
        path.touch()
        modes.append(path.stat().st_mode & 0o777)
        path.unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StageRecorder, "write", interrupted)
        assert CliRunner().invoke(app, words).exit_code != 0
    out = run(words)
    assert modes == [0o600] and read_csv(out / "runs.csv")["seed"].tolist() == ["secret"]
    assert sorted(path.name for path in out.iterdir()) == sorted([*WRITTEN, "runs.csv.record.json"])


def test_a_named_seed_repeats_the_run_and_the_card_begins_with_what_that_costs(example):
    words = changed(example, **SHORT, seed="7")
    first, second = run(words), run(changed(words, out="second"))
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in WRITTEN)
    assert read_csv(first / "runs.csv")["seed"].tolist() == [7] and recorded_seed(first) == 7
    secret = run(changed(words, seed=None, out="secret"))
    open_ = run(changed(words, seed=None, out="open", noise_multiplier="0"))
    parts = [(out / "privacy.md").read_text().split("\n\n")[1] for out in (first, secret, open_)]
    lost = "**Anyone who knows or guesses the seed can draw the noise again and subtract it"
    assert parts[0].startswith("The seed was named by --seed.") and lost in parts[0]
    assert parts[1].startswith("The seed is secret: it was drawn for this run") and lost in parts[1]
    assert parts[2].startswith("**No noise was added: there is no privacy.")


def test_an_interrupted_run_goes_on_with_its_secret_seed(example, monkeypatch):
    words, saved, save = changed(example, **SHORT | {"rounds": "4"}), [], checkpoints.save

    def interrupted(path, state, digest):
        save(path, state, digest)
        saved.append(path)
        if len(saved) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", interrupted)
    assert CliRunner().invoke(app, words).exit_code != 0
    out = Path("my_run")
    assert sorted(path.name for path in out.iterdir()) == ["checkpoint", "secret_seed"]
    kept = out / "secret_seed"
    seed = kept.read_text().split()[0]
    assert kept.stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match="secret_seed is of an interrupted run with other settings, data or model"):
        raise CliRunner().invoke(app, changed(words, noise_multiplier="2")).exception
    with pytest.raises(InputError, match="has an interrupted run with a secret seed: leave out --seed"):
        raise CliRunner().invoke(app, changed(words, seed="1")).exception
    with lock.alone_in(out), pytest.raises(InputError, match="another run is at work in my_run"):
        raise CliRunner().invoke(app, words).exception
    assert kept.read_text().split()[0] == seed
    run(changed(words, memory_gb="0.5"))
    assert len(saved) == 4  # it did not begin again
    assert sorted(path.name for path in out.iterdir()) == sorted([*WRITTEN, "runs.csv.record.json"])
    assert recorded_seed(out) == seed
    whole = run(changed(words, out="whole", seed=seed))
    assert all((out / name).read_bytes() == (whole / name).read_bytes() for name in ("clients.csv", "model.pt"))


def test_a_damaged_secret_seed_is_one_line(example):
    Path("my_run").mkdir()
    Path("my_run/secret_seed").write_text("-5\n")
    with pytest.raises(InputError, match="secret_seed holds no seed: delete it, and the run starts afresh"):
        raise CliRunner().invoke(app, example).exception


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
        ({"model": "my_module:Norm"}, "mixes the records of a batch"),
        ({"model": "my_module:Wide"}, "cannot read records of shape (64,)"),
        ({"model": "my_module:Narrow"}, "gives 9 scores, but the labels have 10 classes"),
        ({"partition": "dirichlet:0.001"}, "leaves client"),
        ({"device": "tpu"}, "--device is tpu; it must be cpu or cuda"),
        ({"out": "../elsewhere"}, "../elsewhere is outside the folder where you are"),
        ({"memory_gb": "1e-9"}, "memory_gb: one record's gradient needs"),
    ],
)
def test_bad_input_is_one_line_before_noise_is_sought_and_writes_nothing(example, others, named, monkeypatch):
    monkeypatch.setattr(own_federation, "statements", None)
    with Path("my_module.py").open("a") as module:
        module.write("def Norm(): return nn.Sequential(nn.Linear(64, 10), nn.BatchNorm1d(10))\n")
        module.write("def Wide(): return nn.Linear(65, 10)\n")
        module.write("def Narrow(): return nn.Linear(64, 9)\n")
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
    done = CliRunner().invoke(
        app, [*words.split(), "--seed", "0", "--batch-size", "8", "--learning-rate", "0.5", "--out", "run"]
    )
    assert done.exit_code == 0, done.exception
    assert read_csv(Path("run/runs.csv"))["accuracy_pct"][0] > 80
    sys.modules.pop("photo_nets")
