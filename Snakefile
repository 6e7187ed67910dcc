# The workflow is in workflow/Snakefile, where Snakemake's catalog and modules look for it. (A plain `include:` drops its target.)
workflow.include("workflow/Snakefile", overwrite_default_target=True)
