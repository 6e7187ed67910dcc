# dpfl: five papers on differentially private federated learning, from raw data to tables, figures, claims and report.
# Run it through the Makefile (make, make quick, make paper), or: snakemake --profile workflow/profiles/default
from snakemake.utils import min_version

min_version("9.0")


configfile: f"{workflow.basedir}/config.yaml"


# For --software-deployment-method apptainer; built from Containerfile. Other runs do not look at it.
container: "dpfl.sif"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/features.smk"
include: "workflow/rules/accounting.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/pages.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/audit.smk"


rule all:
    default_target: True
    input:
        ALL_NOISE,
        ALL_RUNS,
        ALL_PAGES,
        ALL_CLAIMS,
        f"{RESULTS}/audit.txt",
        f"{RESULTS}/manifest.json",


rule download:
    # What a node with internet has to do before nodes without it can go on.
    input:
        ALL_ARRAYS,
