"""Speed of the accountants as ratios measured in one run. One JSON object a line; exit 1 when a target is missed."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant
from scipy.stats import norm

from dpfl.accounting import dpsgd
from dpfl.accounting.contraction import federated_delta, theta

REPEATS = 5


def seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the shortest of several timings, in processor time: what the work itself takes on a shared machine."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def theta_against_two_normal_tails() -> dict:
    """A million values of theta against one pair of scipy's normal tails on the same array: at most 3 times."""
    epsilon = np.linspace(0.0, 5.0, 1_000_000)
    pair = seconds(lambda: (norm.sf(epsilon - 0.5), norm.sf(epsilon + 0.5)))
    return {"name": "theta_over_sf_pair", "ratio": seconds(lambda: theta(epsilon, 1.0)) / pair, "target": "<= 3"}


def long_schedule() -> dict:
    """Theorem 2 of asoodeh2021 with 100,000 rounds, as a share of 50 ms: at most 1."""
    rounds = 100_000
    eta, sigma = 0.5 / np.sqrt(np.arange(1, rounds + 1)), np.linspace(1.0, 2.0, rounds)

    def work() -> object:
        return federated_delta(0.5, n=10 * rounds, m=10, eta=eta, sigma=sigma, lipschitz=1.0, radius=1.0)

    return {"name": "long_schedule_over_50_ms", "ratio": seconds(work) / 0.05, "target": "<= 1"}


def calibrations() -> Iterator[dict]:
    """Calibration by PLD against dp_accounting's own search at an equal answer: at least 4 times as fast."""
    for records, batch, target in ((6000, 64, 2.93), (6000, 64, 1.2), (6000, 256, 2.93), (5000, 64, 7.53)):
        steps = 20 * -(-records // batch)
        rate = 1 / -(-records // batch)

        def theirs(rate: float = rate, steps: int = steps, target: float = target) -> float:
            def event(sigma: float) -> dp_accounting.DpEvent:
                step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
                return dp_accounting.SelfComposedDpEvent(step, steps)

            return dp_accounting.calibrate_dp_mechanism(PLDAccountant, event, target, 1e-5)

        def ours(rate: float = rate, steps: int = steps, target: float = target) -> float:
            setting = {"sample_rate": rate, "steps": steps, "delta": 1e-5}
            return dpsgd.noise_multiplier(target_epsilon=target, accountant="pld", **setting)

        difference = abs(ours() / theirs() - 1)
        ratio = seconds(theirs, repeats=1) / seconds(ours, repeats=2)
        name = f"pld_calibration_n{records}_b{batch}_eps{target:g}"
        yield {"name": name, "ratio": ratio, "target": ">= 4", "relative_difference": difference}


def met(result: dict) -> bool:
    """Return whether a result meets its target."""
    sign, bound = result["target"].split()
    return result["ratio"] <= float(bound) if sign == "<=" else result["ratio"] >= float(bound)


def main() -> int:
    """Run every benchmark; return the exit status."""
    warnings.simplefilter("ignore")
    missed = False
    for result in (theta_against_two_normal_tails(), long_schedule(), *calibrations()):
        print(json.dumps(result), flush=True)
        missed |= not met(result)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
