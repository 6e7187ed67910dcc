import pytest
import yaml

from dpfl.catalog import keys, load
from dpfl.errors import InputError
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import TrainingJob
from dpfl.reporting.claims import as_far_as_run, decides, require_jobs
from dpfl.reporting.results import Results
from dpfl.reporting.rules import ClaimKind, Judgement, Rule, Scope, Verdict

PAPER, CLAIM = "lowy2021", {"runs": {"study": ["shuffle", "availability"]}}
CONFIG = {"scale": "demo", "papers": [PAPER]}


@pytest.fixture
def results(tmp_path):
    """Results with the configuration of a grid, and nothing run."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    return Results(tmp_path)


def needed(config=CONFIG):
    """The jobs that decide the claim."""
    return [each for each in expansion.expand(configuration.resolve(config)) if decides(each, CLAIM["runs"])]


def trained(results, jobs):
    """Put their run tables there."""
    for job in jobs:
        path = expansion.run_table(results.folder, job.paper, job.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"runs")


def judged(results, verdict, scope=Scope.FOR_ALL, claim=CLAIM):
    """The verdict and reason of a judgement after the runs that are missing were counted."""
    made = as_far_as_run(Judgement(verdict, "It holds."), Rule(scope, ClaimKind.DIFFERENCE), PAPER, claim, results)
    return made.verdict, made.reason


DECIDED = {(Scope.FOR_ALL, Verdict.REFUTED), (Scope.EXISTS, Verdict.AS_STATED)}


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("verdict", [Verdict.AS_STATED, Verdict.WEAKER, Verdict.REFUTED])
def test_a_verdict_from_a_part_of_the_runs_stands_only_where_the_rest_cannot_change_it(results, scope, verdict):
    first, *rest = needed()
    trained(results, rest)
    count = f"1 of the {len(rest) + 1} jobs that decide it was not run."
    if (scope, verdict) in DECIDED:
        assert judged(results, verdict, scope) == (verdict, f"It holds. {count}")
    else:
        assert judged(results, verdict, scope) == (Verdict.UNDECIDED, f"So far {verdict}. It holds. {count}")
    trained(results, [first])
    assert judged(results, verdict, scope) == (verdict, "It holds.")


@pytest.mark.parametrize("verdict", [Verdict.NOT_RUN, Verdict.UNDECIDED])
def test_what_is_open_stays_so_and_says_how_many_runs_are_missing(results, verdict):
    words = f"It holds. None of the {len(needed())} jobs that decide it was run."
    assert judged(results, verdict) == (verdict, words)


def test_a_single_job_and_several_of_many_are_named_as_such(results):
    alone = {"runs": {"study": ["shuffle"]}}
    assert judged(results, Verdict.NOT_RUN, claim=alone)[1] == "It holds. Its job was not run."
    every = {"runs": {"experiment": sorted({job.experiment for job in expansion.expand(resolved())})}}
    jobs = expansion.expand(resolved())
    trained(results, jobs[2:])
    words = f"It holds. 2 of the {len(jobs)} jobs that decide it were not run."
    assert judged(results, Verdict.NOT_RUN, claim=every)[1] == words


def resolved():
    """The configuration, complete."""
    return configuration.resolve(CONFIG)


def test_claims_without_runs_and_results_without_a_grid_are_left_alone(results, tmp_path):
    assert judged(results, Verdict.AS_STATED, claim={}) == (Verdict.AS_STATED, "It holds.")
    other = Results(tmp_path / "elsewhere")
    assert judged(other, Verdict.AS_STATED) == (Verdict.AS_STATED, "It holds.")


def training_job(experiment, settings, *cells):
    """A job of one seed."""
    return TrainingJob("paper", experiment, "name", settings, cells or ({"epsilon": 1.0},), (0,))


def test_a_job_decides_a_claim_where_every_named_setting_has_a_listed_value():
    price = training_job("trusted_aggregator", {"study": "price", "clients": 10})
    assert decides(price, {"study": ["price"], "clients": [10, 25], "experiment": ["trusted_aggregator"]})
    assert not decides(price, {"study": ["price"], "clients": [25]}) and not decides(price, None)
    assert decides(price, {"noise": ["none"]}) and not decides(price, {"study": ["none"]})
    zero = training_job("async_dpsgd", {"delay": 0, "noise": None})
    assert decides(zero, {"delay": [0], "noise": ["none"]}) and not decides(zero, {"delay": ["none"]})


def test_a_job_of_whose_cells_a_claim_reads_none_does_not_decide_it():
    table = training_job("fedavg_images", {"clients": 10}, {"epsilon": 1.0, "rounds": 2}, {"epsilon": 3.0, "rounds": 5})
    assert decides(table, {"clients": [10], "epsilon": [3.0], "rounds": [5]})
    assert not decides(table, {"epsilon": [3.0], "rounds": [2]})  # no one cell has both
    assert not decides(table, {"clients": [25], "epsilon": [3.0]})


@pytest.mark.parametrize("key", keys())
def test_every_claims_runs_are_jobs_of_its_paper(key):
    require_jobs(key, load(key).claims)


@pytest.mark.parametrize("runs", [{"study": ["shuffle", "shufle"]}, {"studdy": ["shuffle"]}, {"study": []}])
def test_runs_that_no_job_has_are_refused(runs):
    require_jobs(PAPER, {"shuffle": CLAIM})
    with pytest.raises(InputError, match=f"{PAPER}/claims.yaml: slip: runs names stud.*, which no job"):
        require_jobs(PAPER, {"shuffle": CLAIM, "slip": {"runs": runs}})
