import pytest

from dpfl.papers.asoodeh2020.checks import gaussian_case, laplace_vanishing, long_step, projected_gaussian, stopped
from dpfl.papers.asoodeh2020.figures import parameters
from dpfl.reporting.evidence import passed, table


def test_the_projected_kernel_meets_theta_only_where_the_projection_is_free():
    free, hidden = projected_gaussian(0.5, 2.0), projected_gaussian(1.0, 1.0)
    assert passed(table([free, hidden])).all()
    assert free.independent == pytest.approx(free.ours, abs=free.tolerance)
    assert hidden.independent < hidden.ours - hidden.tolerance


def test_the_known_counterexamples_are_found():
    assert long_step(0.0).independent == pytest.approx(0.1015, abs=1e-4)
    assert long_step(0.0).ours == pytest.approx(0.0340, abs=1e-4)
    assert laplace_vanishing(0.6, 0, 1.0, 0.5).independent == pytest.approx(0.5028, abs=1e-3)
    assert laplace_vanishing(0.6, 1, 1.0, 0.5).independent < 1e-12


def test_the_bound_is_nearly_attained_right_after_the_record():
    case = gaussian_case("figure_2", 0.0, 0, 0.0)
    assert case.ours >= case.independent > 0.98 * case.ours


def test_stopping_early_protects_late_records():
    _, values = parameters("figure_2")
    assert 0 < stopped(values, 0.0, 40) < stopped(values, 0.0, 1)
