# What every rule needs: the checked configuration, the sweeps of its grid, and where things lie.
import hashlib
import json
import sys

from dpfl import config as configuration
from dpfl import grid
from dpfl.data import sources
from dpfl.errors import InputError
from dpfl.papers import load
from dpfl.provenance.source import source_digest

try:
    CONFIG = configuration.resolve(config)
    SWEEPS = {(sweep.paper, sweep.name): sweep for sweep in grid.expand(CONFIG)}
except InputError as error:
    print(f"dpfl: {error}", file=sys.stderr)
    sys.exit(2)

DATA = CONFIG["data"]["folder"]
RESULTS = f"results/{CONFIG['scale']}"
RESOLVED = f"{RESULTS}/config.yaml"
PAPERS = {key: load(key) for key in CONFIG["papers"]}
DATASETS = sorted({sweep.dataset for sweep in SWEEPS.values()})
TRAINED = sorted({paper for paper, _ in SWEEPS})

ALL_ARRAYS = expand(f"{DATA}/arrays/{{dataset}}/about.json", dataset=DATASETS)
ALL_TABLES = [f"{RESULTS}/tables/{key}_{name}.csv" for key, paper in PAPERS.items() for name in paper.tables]
ALL_FIGURES = [f"{RESULTS}/figures/{key}_{name}.csv" for key, paper in PAPERS.items() for name in paper.figures]
ALL_CLAIMS = expand(f"{RESULTS}/claims/{{paper}}.csv", paper=PAPERS)


wildcard_constraints:
    paper="|".join(PAPERS),
    dataset="[a-z0-9_]+",
    file="[A-Za-z0-9_.-]+",
    sweep="[A-Za-z0-9_]+",
    name="[a-z0-9_]+",


localrules:
    all,
    download,
    resolved_config,


def digest_of(facts):
    """Return a hash of what a paper.yaml says: a stage reruns when it changes."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def runs_of(paper):
    """Return the run tables that a paper's tables and figures are made from."""
    return [f"{RESULTS}/runs/{key}/{name}.csv" for key, name in SWEEPS if key == paper]


# The commands read this file. Rules take it as `ancient`: what a stage depends on stands in its params instead,
# so that a change of the configuration reruns only what it touches.
rule resolved_config:
    output:
        RESOLVED,
    params:
        json=json.dumps(CONFIG),
    log:
        f"{RESULTS}/logs/config.log",
    conda:
        "../../environment.yml"
    shell:
        "dpfl config --json {params.json:q} --output {output:q} 2> {log:q}"
