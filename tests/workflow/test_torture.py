"""A few kills of a small run; make torture does a hundred on the demo."""

import re
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.workflow, pytest.mark.slow]


def test_a_run_survives_kills_with_the_same_bytes(repository, tmp_path):
    config = tmp_path / "small.yaml"
    config.write_text(
        "papers: [asoodeh2020, bhaskar2025]\nseeds: [0]\n"
        "only: {model: [scatter_linear], dataset: [digits], epsilon: [2.93], local_epochs: [1, 10], clients: [10],\n"
        "       study: [none]}\n"
    )
    script = repository / "tests" / "workflow" / "torture.py"
    command = [sys.executable, str(script), "--kills", "5", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert re.search(
        r"5 kills survived of 5; [1-9]\d* completed runs of [1-9]\d+ files, all byte-identical", done.stdout
    )
