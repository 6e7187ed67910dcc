import numpy as np
import pandas as pd
import pytest

from dpfl.papers.vandijk2023.claims import _differences
from dpfl.papers.vandijk2023.training_figures import MEASURES, counted_runs, summarise


def test_differences_are_taken_within_a_seed(trained):
    runs = [("strategies", {"strategy": name, "epsilon": 2.0}, level, 2.0, 1.5) for name, level in
            (("constant", 80.0), ("arsinh_2", 77.0))]  # fmt: skip
    rows = trained(runs).runs("vandijk2023", study="strategies")
    data = summarise(rows, ["strategy", "epsilon"], {"strategy": "constant"}, ["epsilon"]).set_index("strategy")
    assert data.loc["arsinh_2", "difference_pct"] == pytest.approx(-3.0)
    # Seeds differ almost alike in both, so the paired interval is small where that of each mean is not.
    assert 0 < data.loc["arsinh_2", "difference_interval_pct"] < 0.01
    assert data.loc["arsinh_2", "interval_pct"] > 0.3
    assert data["runs"].tolist() == [4, 4] and data["accuracy_pct"]["constant"] == pytest.approx(80.45)


def test_a_seed_that_the_baseline_lacks_gives_no_difference(trained):
    runs = [("strategies", {"strategy": name}, 80.0, 2.0, 1.5) for name in ("constant", "arsinh_2")]
    rows = trained(runs).runs("vandijk2023", study="strategies")
    rows = rows[(rows["strategy"] != "constant") | (rows["seed"] != 3)]
    data = summarise(rows, ["strategy"], {"strategy": "constant"}, []).set_index("strategy")
    assert data.loc["arsinh_2", ["runs", "difference_runs"]].tolist() == [4, 3]
    (case,) = _differences(data.loc[["arsinh_2"]].reset_index(), "{strategy}")
    assert (case.n, case.freedom) == (3, 2)


def test_nothing_in_nothing_out(trained):
    runs = [("strategies", {"strategy": "constant"}, 80.0, 2.0, 1.5)]
    data = summarise(trained(runs).runs("vandijk2023", study="samplers"), ["sampler"], {}, [])
    assert data.empty and list(data.columns) == ["dataset", "stand_in_for", "sampler", *MEASURES]


def test_the_footer_says_how_many_runs():
    assert "4 seeds" in counted_runs(pd.DataFrame({"runs": [4, 4]}))
    assert "2 to 4 seeds" in counted_runs(pd.DataFrame({"runs": [4, 2]}))
    assert "no intervals" in counted_runs(pd.DataFrame({"runs": np.array([1])}))
