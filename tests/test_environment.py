import re
import tomllib

import yaml


def test_conda_and_pip_have_the_same_pins(repository):
    conda = yaml.safe_load((repository / "environment.yml").read_text())
    [pip] = [entry["pip"] for entry in conda["dependencies"] if isinstance(entry, dict)]
    assert pip == (repository / "requirements.lock").read_text().split()


def test_every_dependency_is_pinned_exactly_and_none_needs_cuda(repository):
    pins = (repository / "requirements.lock").read_text().split()
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", pin) for pin in pins)
    assert not [pin for pin in pins if pin.startswith(("nvidia", "triton", "cuda"))]
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["test"]
    pinned = {pin.split("==")[0].lower().replace("_", "-") for pin in pins}
    assert {re.split(r"[\[<>=]", need)[0].lower() for need in wanted} <= pinned
