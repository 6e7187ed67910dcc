"""The accountant in Opacus's registry: a private training by its name, and its numbers against Opacus's own."""

import math
import re
import warnings
from pathlib import Path

import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant, RDPAccountant, create_accountant
from opacus.accountants.utils import get_noise_multiplier
from torch.utils.data import DataLoader, TensorDataset

from dpfl.accounting.guarantees import guarantee
from dpfl.accounting.opacus_accountant import CertifiedAccountant, register
from dpfl.accounting.samplers import Poisson

PAGE = Path(__file__).parents[2] / "docs/howto/opacus.md"


@pytest.fixture
def registered():
    """Register the accountant; Opacus warns of its generators and hooks."""
    register()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def private_training(engine: PrivacyEngine, **settings) -> None:
    """Train a linear model for two epochs on 100 records in batches of 10."""
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(100, 3, generator=generator), torch.zeros(100, 1))
    model = torch.nn.Linear(3, 1)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=10),
        max_grad_norm=1.0,
        **settings,
    )
    for _ in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()


@pytest.mark.usefixtures("registered")
def test_an_engine_trains_with_it_by_name():
    engine = PrivacyEngine(accountant="dpfl_pld")
    private_training(engine, noise_multiplier=1.3)
    assert engine.accountant.history == [(1.3, 0.1, 20)]
    proven = guarantee(Poisson(0.1), noise_multiplier=1.3, steps=20, delta=1e-5).upper
    assert engine.get_epsilon(1e-5) == proven


@pytest.mark.usefixtures("registered")
def test_the_example_of_the_page_runs():
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL).group(1)
    names: dict = {}
    exec(code, names)
    assert 0 < names["epsilon"] < 3


@pytest.mark.usefixtures("registered")
def test_it_is_not_above_theirs_and_not_below_the_pair():
    for history in ([(1.1, 0.01, 1000)], [(1.0, 0.02, 200), (2.0, 0.05, 300)]):
        ours, rdp, prv = CertifiedAccountant(), RDPAccountant(), PRVAccountant()
        for accountant in (ours, rdp, prv):
            accountant.history = list(history)
        epsilon = ours.get_epsilon(1e-5)
        assert epsilon < rdp.get_epsilon(1e-5)
        # PRV errs by 0.01 at most, upwards.
        assert prv.get_epsilon(1e-5) - 0.021 < epsilon < prv.get_epsilon(1e-5) + 1e-4


@pytest.mark.usefixtures("registered")
def test_steps_join_and_state_comes_back():
    accountant = create_accountant("dpfl_pld")
    assert (len(accountant), accountant.get_epsilon(1e-5)) == (0, 0.0)
    for noise in (1.0, 1.0, 2.0):
        accountant.step(noise_multiplier=noise, sample_rate=0.1)
    assert accountant.history == [(1.0, 0.1, 2), (2.0, 0.1, 1)] and len(accountant) == 3  # steps, as IAccountant says
    again = create_accountant("dpfl_pld")
    again.load_state_dict(accountant.state_dict())
    assert again.get_epsilon(1e-5) == accountant.get_epsilon(1e-5)


@pytest.mark.usefixtures("registered")
def test_a_step_without_noise_has_no_guarantee():
    accountant = CertifiedAccountant()
    accountant.step(noise_multiplier=0.0, sample_rate=0.1)
    assert accountant.get_epsilon(1e-5) == math.inf


@pytest.mark.parametrize("noises", [[], [0.0], [1.0]])
@pytest.mark.parametrize("delta", [0.0, 5, math.nan])
def test_delta_is_checked_whatever_was_counted(noises, delta):
    counted = CertifiedAccountant()
    for noise in noises:
        counted.step(noise_multiplier=noise, sample_rate=0.1)
    with pytest.raises(ValueError, match="delta"):
        counted.get_epsilon(delta)


def test_a_history_without_a_step_spends_nothing():
    counted = CertifiedAccountant()
    counted.history = [(0.0, 0.1, 0)]
    assert counted.get_epsilon(1e-5) == 0.0


@pytest.mark.usefixtures("registered")
def test_opacus_calibrates_with_it():
    settings = {"target_epsilon": 2.0, "target_delta": 1e-5, "sample_rate": 0.05, "steps": 50}
    noise = get_noise_multiplier(**settings, accountant="dpfl_pld", epsilon_tolerance=0.1)
    spent = guarantee(Poisson(0.05), noise_multiplier=noise, steps=50, delta=1e-5).upper
    assert 1.9 <= spent <= 2.0
    assert noise < get_noise_multiplier(**settings, accountant="rdp")
