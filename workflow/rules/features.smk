# Scattering features, computed once per dataset for all scales (see data.smk).


rule features:
    input:
        arrays=f"{DATA}/arrays/{{dataset}}/description.json",
    output:
        description=f"{DATA}/features/{{dataset}}/description.json",
        record=f"{DATA}/features/{{dataset}}/description.json.record.json",
    log:
        f"{DATA}/logs/features_{{dataset}}.log",
    benchmark:
        f"{DATA}/benchmarks/features_{{dataset}}.tsv"
    resources:
        mem_mb=more(3000),
        runtime=more(60),
        config=RESOLVED,
    params:
        command=own_digest("dpfl.cli.app", "dpfl.cli.data_commands"),
        code=source_digest("dpfl.features.scattering"),
    shell:
        f"{DPFL} features --dataset {{wildcards.dataset:q}} --config {{resources.config:q}} 2> {{log:q}}"
