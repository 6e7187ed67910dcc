"""The package's face: its names, and what importing it loads."""

import math
import runpy
import subprocess
import sys
import tomllib

import dpfl.accounting
from dpfl.accounting import sampler_accountants


def test_every_public_name_is_there_and_in_the_table_of_contents():
    for name in dpfl.accounting.__all__:
        assert getattr(dpfl.accounting, name).__name__ == name
        assert name in dpfl.accounting.__doc__
    assert set(dpfl.accounting.__all__) <= set(dir(dpfl.accounting))


def test_the_import_loads_no_scipy_and_its_use_neither_torch_nor_other_accountants():
    code = (
        "import sys, dpfl.accounting; slow = 'scipy' in sys.modules;"
        "from dpfl.accounting import guarantee, Poisson;"
        "guarantee(Poisson(0.1), noise_multiplier=1, steps=5, delta=1e-5);"
        "others = 'dp_accounting' in sys.modules; from dpfl.accounting import dpsgd;"
        "dpsgd.epsilon(noise_multiplier=1.0, sample_rate=0.1, steps=2, delta=1e-5);"
        "run = {'sample_rate': 0.1, 'steps': 2, 'delta': 1e-5, 'accountant': 'pld'};"
        "dpsgd.noise_multiplier(target_epsilon=1.0, **run);"
        "print(slow, others, 'torch' in sys.modules or 'opacus' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.split() == ["False", "False", "False"]


def test_documented_calls_run_and_the_type_checker_reads_them(repository):
    """A sampler outside the union `Sampler`, a pure mechanism and a class of a user's own are arguments too."""
    place = "tests/accounting/typed_use.py"
    settings = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    assert place in settings["tool"]["pyright"]["include"]
    names = runpy.run_path(str(repository / place), run_name="typed_use")
    try:
        found = names["documented_calls"]()
    finally:
        sampler_accountants._ACCOUNTANTS.pop(names["Cyclic"])
    assert all(0 < value < math.inf for value in found.values()), found
