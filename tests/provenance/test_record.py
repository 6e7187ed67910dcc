"""Records: what a stage states, what a reader refuses, the environment, and inputs that are checked."""

import getpass
import hashlib
import itertools
import json
import os
import shutil
import socket
import subprocess
from importlib import metadata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.provenance import record
from dpfl.provenance.record import EarlierFormatError, StageRecorder, read_record


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text("a\n1\n")
    out = tmp_path / "out.csv"
    out.write_text("b\n2\n")
    path = record_path(out)
    stage = StageRecorder("train", ("dpfl.grid.expansion",), {"epsilon": 2.93}, (0, 1))
    stage.reads([tmp_path / "in.csv"])
    stage.write(path, [out])
    return path


def test_a_record_says_what_went_in_and_came_out(written):
    stated = read_record(written)
    assert stated["inputs"] == [{"path": "in.csv", "bytes": 4, "sha256": hashlib.sha256(b"a\n1\n").hexdigest()}]
    assert stated["outputs"][0]["path"] == "out.csv"
    assert stated["settings"] == {"epsilon": 2.93} and stated["seeds"] == [0, 1]
    assert stated["software"]["numpy"] and stated["seconds"] >= 0 and len(stated["source"]["digest"]) == 16


def test_a_record_names_no_user_no_host_and_no_absolute_path(written):
    text = written.read_text()
    assert str(written.parent) not in text and os.path.expanduser("~") not in text
    for private in {getpass.getuser(), socket.gethostname()}:
        assert f'"{private}"' not in text and f"/{private}/" not in text


@pytest.mark.parametrize(
    ("named", "stated"), [("0123456789abcdef" * 2 + "01234567", True), ("main", False), ("", False)]
)
def test_a_source_tree_without_git_takes_its_commit_from_the_environment(tmp_path, monkeypatch, named, stated):
    monkeypatch.setattr(record, "__file__", str(tmp_path / "dpfl" / "provenance" / "record.py"))
    monkeypatch.setenv(record.COMMIT, named)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    record._commit.cache_clear()
    assert record._commit() == {"commit": named if stated else None, "dirty": None}
    record._commit.cache_clear()


def _git(folder, *words):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", folder, *own, *words], env=clean, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _repository(folder):
    """A repository with one commit, which is not that of the source tree; returns the commit."""
    folder.mkdir()
    (folder / "file").write_text(folder.name)
    _git(folder, "init", "-q")
    _git(folder, "add", ".")
    _git(folder, "commit", "-qm", "another")
    return _git(folder, "rev-parse", "HEAD")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A function that makes a folder the source tree of this process."""

    def at(folder):
        place = folder / "src" / "dpfl" / "provenance" / "record.py"
        place.parent.mkdir(parents=True)
        shutil.copy(record.__file__, place)
        monkeypatch.setattr(record, "__file__", str(place))
        record._commit.cache_clear()

    monkeypatch.delenv(record.COMMIT, raising=False)
    yield at
    record._commit.cache_clear()


def test_the_variables_of_a_hook_make_no_other_repository_the_source_tree(tree, tmp_path, monkeypatch):
    other = tmp_path / "other"
    commit, own = _repository(other), _repository(tmp_path / "own")
    tree(tmp_path / "own")
    for name, value in (("GIT_DIR", other / ".git"), ("GIT_WORK_TREE", other), ("GIT_INDEX_FILE", other / "index")):
        monkeypatch.setenv(name, str(value))
    assert commit != own and record._commit() == {"commit": own, "dirty": True}


def test_a_new_file_is_a_change_whatever_the_user_s_git_shows(tree, tmp_path):
    own = _repository(tmp_path / "own")
    _git(tmp_path / "own", "config", "status.showUntrackedFiles", "no")
    tree(tmp_path / "own")
    assert record._commit() == {"commit": own, "dirty": True}


def test_a_record_names_the_code_with_which_its_stage_began(tree, tmp_path, monkeypatch):
    own = _repository(tmp_path / "own")
    tree(tmp_path / "own")
    monkeypatch.chdir(tmp_path)
    stage = record.StageRecorder("a stage", ("dpfl.files",))
    digest = stage.source["digest"]
    monkeypatch.setattr(record, "source_digest", lambda *_: "another")
    record._commit.cache_clear()
    _git(tmp_path / "own", "commit", "-qm", "later", "--allow-empty")
    assert record._commit()["commit"] != own
    stage.write(tmp_path / "out.record.json", [])
    said = json.loads((tmp_path / "out.record.json").read_text())["source"]
    assert (said["commit"], said["digest"]) == (own, digest)


def test_a_tree_whose_changes_git_does_not_tell_is_not_clean(tree, tmp_path, monkeypatch):
    own = _repository(tmp_path / "own")
    tree(tmp_path / "own")
    asked = record.git
    monkeypatch.setattr(record, "git", lambda at, *words: None if words[0] == "status" else asked(at, *words))
    assert record._commit() == {"commit": own, "dirty": True}


def test_an_archive_inside_another_repository_has_no_commit_of_it(tree, tmp_path, monkeypatch):
    _repository(tmp_path / "other")
    tree(tmp_path / "other" / "unpacked")
    assert record._commit() == {"commit": None, "dirty": None}
    record._commit.cache_clear()
    monkeypatch.setenv(record.COMMIT, "ab" * 20)
    assert record._commit()["commit"] == "ab" * 20


# A record is read whole or refused in one line.


@pytest.fixture
def place_of_record(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source, output = tmp_path / "in é.csv", tmp_path / "out.csv"
    source.write_text("1")
    output.write_text("2")
    stage = StageRecorder("train", ("dpfl.grid.expansion",), {"paper": "x"}, (0, 1))
    stage.reads([source])
    stage.write(record_path(output), [output])
    return record_path(output)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": "other"}', "[" * 100_000, "1" * 5000, '{"format": "dpfl-record/2"}']
)
def test_a_damaged_record_is_named(tmp_path, text):
    path = tmp_path / "x.record.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"x\.record\.json"):
        read_record(path)


PARTS = ("stage", "started", "settings", "seeds", "inputs", "outputs", "source", "host")
READABLE = [("stage", "x"), ("settings", {"a": 1}), ("seeds", [7])]


@pytest.mark.parametrize(("part", "value"), READABLE)
def test_a_record_of_another_stage_settings_or_seeds_is_read(place_of_record, part, value):
    place_of_record.write_text(json.dumps({**json.loads(place_of_record.read_text()), part: value}))
    assert read_record(place_of_record)[part] == value


@pytest.mark.parametrize(
    ("part", "value"),
    [pair for pair in itertools.product(PARTS, (None, 7, "x", [7], {"a": 1})) if pair not in READABLE],
)
def test_a_record_without_what_its_readers_need_is_damaged(place_of_record, part, value):
    told = json.loads(place_of_record.read_text())
    place_of_record.write_text(json.dumps({**told, part: value}))
    with pytest.raises(InputError, match="damaged"):
        read_record(place_of_record)
    place_of_record.write_text(json.dumps({name: each for name, each in told.items() if name != part}))
    with pytest.raises(InputError, match="damaged"):
        read_record(place_of_record)


@pytest.mark.parametrize("path", ["", "a/..", "../a", "a/../../b", "/etc/passwd", "a//b", "a\0b", "\ud800", "x" * 300])
def test_a_record_of_an_impossible_file_is_damaged(place_of_record, path):
    told = json.loads(place_of_record.read_text())
    told["outputs"][0]["path"] = path
    place_of_record.write_text(json.dumps(told))
    with pytest.raises(InputError, match="damaged"):
        read_record(place_of_record)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_flipped_byte_of_a_record_is_refused_or_leaves_a_record(place_of_record, data):
    whole = place_of_record.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    place_of_record.write_bytes(
        whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :]
    )
    try:
        assert read_record(place_of_record)["outputs"][0]["sha256"]
    except InputError as error:
        assert "\n" not in str(error)
    place_of_record.write_bytes(whole)


@pytest.mark.parametrize("value", [1e308, -1.0, float("nan"), 10**400])
def test_a_record_of_an_impossible_duration_is_damaged(place_of_record, value):
    place_of_record.write_text(json.dumps(json.loads(place_of_record.read_text()) | {"seconds": value}))
    with pytest.raises(InputError, match="damaged"):
        read_record(place_of_record)


@pytest.mark.parametrize(
    "time",
    [
        "9999-12-31T23:59:59+00:00", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+00:00",
        "0001-01-01T00:00:00+23:59", "1999-12-31T23:59:59+00:00", "2201-01-01T00:00:00+00:00", "2026-11-22T17:15:38",
    ],
)  # fmt: skip
def test_a_record_of_a_time_that_no_run_can_have_is_damaged(place_of_record, time):
    place_of_record.write_text(json.dumps(json.loads(place_of_record.read_text()) | {"started": time}))
    with pytest.raises(InputError, match="damaged"):
        read_record(place_of_record)
    done = CliRunner().invoke(app, ["trace", "out.csv"])
    assert isinstance(done.exception, InputError) and "damaged" in str(done.exception)


@pytest.mark.parametrize("time", ["2000-01-01T00:00:00+23:59", "2200-12-31T23:59:59-23:59"])
def test_the_earliest_and_the_latest_time_can_be_compared_after_the_longest_duration(place_of_record, time):
    place = place_of_record.with_name("next.csv.record.json")
    told = json.loads(place_of_record.read_text()) | {"started": time, "seconds": 1e9}
    place_of_record.write_text(json.dumps(told))
    told["inputs"], told["outputs"] = told["outputs"], [told["outputs"][0] | {"path": "next.csv"}]
    place.write_text(json.dumps(told))
    place_of_record.with_name("next.csv").write_text("2")
    done = CliRunner().invoke(app, ["trace", "next.csv"])
    assert done.exit_code == 0 and "out.csv is younger than next.csv" in done.output, done.exception


@pytest.mark.parametrize("place", ["stage", "settings", "host", "inputs"])
def test_a_record_of_what_is_no_text_is_damaged(place_of_record, place):
    """A lone surrogate can neither be printed nor hashed."""
    told = json.loads(place_of_record.read_text())
    lone = {"stage": "fig\ud800", "settings": {"\udfff": 1}, "host": told["host"] | {"system": "\ud800"}}
    lone["inputs"] = [told["inputs"][0] | {"path": "in\udcff.csv"}]
    place_of_record.write_text(json.dumps(told | {place: lone[place]}))
    with pytest.raises(InputError, match="damaged"):
        read_record(place_of_record)


@pytest.mark.parametrize("commit", ["7f" * 20, None, "$(reboot)"])
def test_a_record_of_the_earlier_version_is_refused_with_its_commit(place_of_record, commit):
    earlier = json.loads(place_of_record.read_text()) | {"format": "dpfl-record/1", "source": {"commit": commit}}
    place_of_record.write_text(json.dumps(earlier))
    with pytest.raises(EarlierFormatError, match="written by an earlier version") as refused:
        read_record(place_of_record)
    assert ("7f" * 20 in str(refused.value)) == (commit == "7f" * 20) and "reboot" not in str(refused.value)
    folder = place_of_record.parent / "results" / "demo"
    folder.mkdir(parents=True)
    place_of_record.rename(folder / place_of_record.name)
    done = CliRunner().invoke(app, ["audit", str(folder)])
    assert isinstance(done.exception, EarlierFormatError) and "\n" not in str(done.exception)


# What a record says of its environment: against the lock file, without user or host.


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """A function that writes a lock file and returns how this environment differs from it."""

    def differs(text):
        monkeypatch.setattr(record, "LOCK", tmp_path / "requirements.lock")
        record.LOCK.write_text(text)
        record._not_as_locked.cache_clear()
        return record.software()

    yield differs
    record._not_as_locked.cache_clear()


def test_an_environment_of_the_lock_differs_in_nothing(lock):
    here = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    text = "".join(f"{name.upper()}=={version.partition('+')[0]}\n" for name, version in here.items())
    seen = lock(text)
    assert seen["not_as_locked"] == {} and seen["lock"] == hashlib.sha256(text.encode()).hexdigest()


def test_every_other_version_is_named(lock):
    here = {record._normal(each.metadata["Name"]): each.version for each in metadata.distributions()}
    text = "".join(f"{name}=={version}\n" for name, version in here.items() if name != "rich")
    differs = lock(text.replace(f"numpy=={here['numpy']}\n", "numpy==1.0\n") + "no-such_package==1.0\n")[
        "not_as_locked"
    ]
    assert differs == {"no-such-package": "not installed", "numpy": here["numpy"], "rich": here["rich"]}


@pytest.mark.parametrize(
    ("named", "digest"), [("", None), ("image:latest", None), (f"r.org/u/i@sha256:{'ab' * 32}", f"sha256:{'ab' * 32}")]
)
def test_a_container_is_named_by_its_digest_alone(monkeypatch, named, digest):
    monkeypatch.setenv(record.CONTAINER, named)
    assert record.software()["container"] == digest


def test_the_host_states_processor_blas_and_threads_in_force_and_no_name(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    host = record.host("cpu", 2)
    assert host["cpu"] and host["omp_num_threads"] == "1" and host["threads"] == 2
    assert all(" x " in library for library in host["blas"]) and host["blas"]
    assert socket.gethostname() not in map(str, host.values())


def test_a_gpu_s_host_states_its_model_and_a_cpu_s_says_nothing_of_it(monkeypatch):
    facts = {"gpu": "NVIDIA H100", "cuda": "12.6", "cudnn": 91002}
    monkeypatch.setattr(record.gpu, "facts", lambda: facts)
    there, here = record.host("cuda", 1), record.host("cpu", 1)
    assert there == here | facts | {"device": "cuda"} and not facts.keys() & here.keys()


# A stage reads only what an earlier stage wrote.


@pytest.fixture
def output(tmp_path, monkeypatch):
    """A file with its record, a second old."""
    monkeypatch.chdir(tmp_path)
    record._outputs.cache_clear()
    path = tmp_path / "out.csv"
    path.write_text("b\n2\n")
    StageRecorder("train", ("dpfl.grid.expansion",)).write(record_path(path), [path])
    before = path.stat().st_mtime_ns - 10**9
    os.utime(path, ns=(before, before))
    return path


def flip(path, *, keep_age):
    """Change one byte; keep the file's age as bit rot does."""
    age = path.stat().st_mtime_ns
    path.write_bytes(b"c" + path.read_bytes()[1:])
    if keep_age:
        os.utime(path, ns=(age, age))


def test_an_untouched_file_is_described(output):
    sha256 = hashlib.sha256(b"b\n2\n").hexdigest()
    assert record.check([output]) == [{"path": "out.csv", "bytes": 4, "sha256": sha256}]


def test_a_file_without_record_is_hashed(output):
    stray = output.with_name("stray.csv")
    stray.write_text("x")
    assert record.check([stray])[0]["sha256"] == hashlib.sha256(b"x").hexdigest()


def test_touching_is_no_change(output):
    output.touch()
    assert record.check([output])[0]["bytes"] == 4


def test_a_flipped_byte_in_a_newer_file_is_named(output):
    flip(output, keep_age=False)
    os.utime(output, ns=(2**62, 2**62))
    with pytest.raises(InputError, match=r"out\.csv is not what its record says.*--rebuild"):
        record.check([output])


def test_a_flipped_byte_under_an_old_date_is_found(output):
    flip(output, keep_age=True)
    with pytest.raises(InputError, match=r"out\.csv"):
        record.check([output])


def test_another_length_is_found_whatever_its_date(output):
    age = output.stat().st_mtime_ns
    output.write_text("b\n")
    os.utime(output, ns=(age, age))
    with pytest.raises(InputError, match=r"out\.csv"):
        record.check([output])


def test_a_missing_file_is_named(output):
    with pytest.raises(InputError, match=r"gone\.csv is not there"):
        record.check([output.with_name("gone.csv")])


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_regular_file_is_refused_without_being_opened(output, kind):
    stray = output.with_name("stray.csv")
    {"link": lambda: stray.symlink_to(output), "folder": stray.mkdir, "pipe": lambda: os.mkfifo(stray)}[kind]()
    with pytest.raises(InputError, match=r"stray\.csv is not a regular file"):
        record.check([stray])


def test_a_process_that_changes_its_folder_reads_the_records_there(output, tmp_path, monkeypatch):
    [before] = record.check([output.relative_to(tmp_path)])
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    (other / "out.csv").write_text("longer than what the first folder's record says\n")
    [after] = record.check([output.relative_to(tmp_path)])
    assert after["bytes"] > before["bytes"]
