import sys

from dpfl.commands import git, output_of


def test_what_a_program_prints_or_none(tmp_path):
    assert output_of(sys.executable, "-c", "print('yes')") == b"yes\n"
    assert output_of(sys.executable, "-c", "print('no'); raise SystemExit(3)") is None
    assert output_of(tmp_path / "no-such-program") is None
    assert git(tmp_path, "rev-parse", "HEAD") is None


def test_git_answers_in_its_folder(repository):
    assert git(repository, "rev-parse", "--show-toplevel") == f"{repository}\n".encode()
