"""The package's face: its names, and what importing it loads."""

import subprocess
import sys

import dpfl.accounting


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
