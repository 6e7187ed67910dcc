import sys

from typer.testing import CliRunner

from dpfl import __version__
from dpfl.cli import app
from dpfl.errors import InputError


def test_the_version_is_printed_without_a_command():
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0 and done.output == f"dpfl {__version__}\n"


def test_an_audit_of_the_folder_of_all_scales_is_refused(tmp_path):
    (tmp_path / "results/demo").mkdir(parents=True)
    (tmp_path / "results/demo/config.yaml").write_text("scale: demo\n")
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "results"), "--rebuild"])
    assert isinstance(done.exception, InputError) and "several scales" in str(done.exception)
    assert (tmp_path / "results/demo/config.yaml").exists()


def test_the_accountants_alone_say_how_to_get_the_other_commands(monkeypatch):
    module = sys.modules["dpfl.cli.app"]  # the package has its Typer by the same name
    monkeypatch.setattr(module, "PIPELINE", False)
    done = CliRunner().invoke(app, ["no-such-command"])
    assert isinstance(done.exception, InputError) and "pip install '.[pipeline]'" in str(done.exception)
    monkeypatch.setattr(module, "PIPELINE", True)
    assert "No such command" in CliRunner().invoke(app, ["no-such-command"]).output
