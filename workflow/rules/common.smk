# Shared by all rules: the checked configuration, the jobs of its grid, and where files are.
import functools
import hashlib
import itertools
import math
import os
import shlex
import sys
from pathlib import Path

import yaml
from snakemake.exceptions import WorkflowError
from snakemake_interface_executor_plugins.settings import SharedFSUsage

from dpfl import files
from dpfl.catalog import load, recipe_code
from dpfl.data import datasets, fetch
from dpfl.errors import InputError, printable
from dpfl.experiments import module_name
from dpfl.grid import configuration, expansion
from dpfl.pipeline import cost, job_batches, plan, process_cleanup, run
from dpfl.provenance import run_identity
from dpfl.provenance.source_digest import own_digest, source_digest

# Another workflow may use this one as a module, below a prefix: there Snakemake puts the prefix before every path of a
# rule, and the commands run in its folder.
IS_MODULE = not workflow.modifier.is_main_snakefile()
_PLACED = Path(workflow.modifier.path_modifier.replace_prefix("results/demo"))
ROOT = _PLACED.parents[1]
DPFL = f"dpfl --directory {shlex.quote(str(ROOT))}" if ROOT.parts else "dpfl"

try:
    if ROOT / "results" / "demo" != _PLACED:
        raise InputError(
            "replace_prefix cannot be used, for the commands write to results, data and checkpoints: use prefix"
        )
    if SharedFSUsage.INPUT_OUTPUT not in workflow.storage_settings.shared_fs_usage:
        raise InputError("the stages read one another's files by path: choose an executor with a shared file system")
    CONFIG = configuration.resolve(config)
    JOBS = {(job.paper, job.name): job for job in expansion.expand(CONFIG)}
    for job in JOBS.values():
        module_name(job.experiment)
    fetch.configured(CONFIG["data"]["mirror"])
    plan.require_no_brace((ROOT / CONFIG["data"]["folder"]).absolute())
    files.require_writable(ROOT / "results", ROOT / CONFIG["data"]["folder"])
except InputError as error:
    print(f"dpfl: {printable(str(error))}", file=sys.stderr)
    sys.exit(2)

# A stage ends with the Snakemake process that started it.
os.environ[process_cleanup.CONTROLLER] = str(os.getpid())

DATA = CONFIG["data"]["folder"]
RESULTS = f"results/{CONFIG['scale']}"
RESOLVED = f"{RESULTS}/config.yaml"
PAPERS = {key: load(key) for key in CONFIG["papers"]}
DATASETS = sorted({job.dataset for job in JOBS.values()})


def jobs_of(paper):
    """Return the jobs of a paper."""
    return [job for job in JOBS.values() if job.paper == paper]


# What its record shows to be made from today's settings, data and code is finished, whatever the times of files and
# Snakemake's own notes say: nothing makes it again. All else is made; `dpfl run` forces these rules, for Snakemake takes
# a file for up to date where its notes are lost. A job on a node is asked for its output, and makes it.
if workflow.is_main_process:
    OPEN = [key for key, job in JOBS.items() if not run_identity.is_finished(job, ROOT / RESULTS)]
    UNCALIBRATED = [
        key
        for key in PAPERS
        if not run_identity.is_calibrated(jobs_of(key), expansion.noise_table_path(ROOT / RESULTS, key))
    ]
else:
    OPEN, UNCALIBRATED = list(JOBS), list(PAPERS)

# On a cluster several training jobs of minutes make one SLURM job. Those on nodes read which they are: it depends on what is open.
# A long job has several cores, among which its clients are divided. A module has a job of one core for each.
COMPOSITION = Path("checkpoints") / CONFIG["scale"] / "batches.json"
NODE_CORES = 1
if IS_MODULE:
    BATCHES, CORES = [], {}
elif workflow.is_main_process:
    SIDE_BY_SIDE = workflow.global_resources.get("side_by_side").value
    NODE_MB = workflow.global_resources.get("mem_mb").value or math.inf
    NODE_CORES = workflow.cores if SIDE_BY_SIDE else 1
    BATCHES, _alone = job_batches.divide(map(JOBS.get, OPEN), SIDE_BY_SIDE or 1, NODE_MB)
    CORES = {(job.paper, job.name): cost.cores_of(job, NODE_CORES, NODE_MB) for job in _alone}
else:
    BATCHES, CORES = job_batches.read(COMPOSITION, JOBS)
BATCHED = {(job.paper, job.name) for batch in BATCHES for job in batch.jobs}
ALONE = [key for key in OPEN if key not in BATCHED]


def pages(paper, kind, *endings):
    """Return the files of a paper's tables or figures (`kind`) with these endings."""
    names = getattr(PAPERS[paper], kind)
    return [f"{RESULTS}/{kind}/{paper}_{name}.{ending}" for ending in endings for name in names]


def caption_of(page):
    """Return the file with a page's caption, in the page's folder."""
    return str((ROOT / page).with_suffix(".rst").absolute())


ALL_ARRAYS = expand(f"{DATA}/arrays/{{dataset}}/description.json", dataset=DATASETS)
# Noise that is what its paper needs is made by no rule, and need not be asked for.
ALL_NOISE = [
    str(expansion.noise_table_path(Path(RESULTS), paper))
    for paper in (PAPERS if IS_MODULE else UNCALIBRATED)
    if jobs_of(paper)
]
ALL_RUNS = [str(expansion.run_table_path(Path(RESULTS), job.paper, job.name)) for job in JOBS.values()]
# Every file of every page: whichever of them is missing, its stage makes them all again.
ENDINGS = {"tables": ["csv", "html", "md", "tex", "rst"], "figures": ["csv", "svg", "pdf", "png", "rst"]}
ALL_PAGES = [page for key in PAPERS for kind, endings in ENDINGS.items() for page in pages(key, kind, *endings)]
ALL_CLAIMS = expand(f"{RESULTS}/claims/{{paper}}.{{ending}}", paper=PAPERS, ending=["csv", "html"])


wildcard_constraints:
    paper="|".join(PAPERS),
    dataset="[a-z0-9_]+",
    file="[A-Za-z0-9_.-]+",
    job="[A-Za-z0-9_]+",


# The commands read the checked and completed configuration from a file that is nobody's output and nobody's input:
# what a stage depends on is in its params, so that a change of the configuration reruns only what it touches.
def write_configuration():
    """Write the configuration for the commands."""
    files.write_atomically(ROOT / RESOLVED, yaml.safe_dump(CONFIG, sort_keys=False))


onstart:
    try:
        process_cleanup.cancel_left_behind(Path())
    except InputError as error:
        raise WorkflowError(str(error))
    write_configuration()
    if SIDE_BY_SIDE or COMPOSITION.exists():
        job_batches.write(BATCHES, CORES, COMPOSITION)


# Snakemake does not run the onstart of a module.
if IS_MODULE and workflow.is_main_process and not run.engine_options(sys.argv[1:]).only_asks:
    write_configuration()


def more(first):
    """Return a resource that grows by half of `first` at each further attempt."""
    return lambda wildcards, attempt: first * (attempt + 1) // 2


def at_attempt(limit):
    """Return a resource that depends on the attempt alone."""
    return lambda wildcards, attempt: limit(attempt)


def digest_of(facts):
    """Return a hash of what a paper's YAML files say: a stage reruns when it changes."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def facts_of(paper, part, with_captions):
    """Return what a part of a paper's YAML files says, with the captions of its pages or without."""
    facts = getattr(PAPERS[paper], part)
    if part == "settings":
        return facts
    words = () if with_captions or part == "errata" else ("title", "caption")
    return {name: {key: value for key, value in entry.items() if key not in words} for name, entry in facts.items()}


def raw_files(wildcards):
    """Return the records of the verified files that a dataset is unpacked from; a stand-in needs none."""
    files = datasets.load(wildcards.dataset).official_files
    return [f"{DATA}/raw/{wildcards.dataset}/{file}.record.json" for file in files]


def datasets_of(wildcards):
    """Return the descriptions of the datasets that a paper trains on."""
    return expand(
        f"{DATA}/arrays/{{dataset}}/description.json", dataset=sorted({s.dataset for s in jobs_of(wildcards.paper)})
    )


def runs_of(paper):
    """Return the run tables that a paper's tables and figures are made from."""
    return [str(expansion.run_table_path(Path(RESULTS), paper, job.name)) for job in jobs_of(paper)]


def evidence_of(wildcards):
    """Return the tables and figures that a paper's claims are judged by."""
    return pages(wildcards.paper, "tables", "csv") + pages(wildcards.paper, "figures", "csv")


def job_of(wildcards):
    """Return the training job that wildcards name."""
    return JOBS[wildcards.paper, wildcards.job]


def cores_of(wildcards):
    """Return the cores that a job divides its clients among."""
    return CORES.get((wildcards.paper, wildcards.job), 1)


def threads_of(wildcards):
    """Return the cores that a job asks for: all of a node where no neighbour may slow it."""
    has_node = workflow.is_main_process and needs_of(wildcards.paper, wildcards.job).needs_node
    return NODE_CORES if has_node and NODE_CORES > 1 else cores_of(wildcards) * CONFIG["training"]["threads"]


@functools.cache
def needs_of(paper, job):
    """Return what a job needs on its cores."""
    return cost.estimate(JOBS[paper, job], cores=CORES.get((paper, job), 1))


def data_of(job):
    """Return the data that a job trains from."""
    kinds = ["arrays", "features"] if job.needs_features else ["arrays"]
    return [f"{DATA}/{kind}/{job.dataset}/description.json" for kind in kinds]


def is_one_of(jobs):
    """Return a pattern for the papers of these jobs, where a path goes on with one of their names."""
    return f"(?=({plan.names(map('/'.join, jobs))})[.]csv)[a-z0-9]+"
