# Scattering features, computed once a dataset.


rule features:
    input:
        arrays=f"{DATA}/arrays/{{dataset}}/about.json",
        config=ancient(RESOLVED),
    output:
        about=f"{DATA}/features/{{dataset}}/about.json",
        record=f"{DATA}/features/{{dataset}}/about.json.record.json",
    log:
        f"{DATA}/logs/features_{{dataset}}.log",
    benchmark:
        f"{DATA}/benchmarks/features_{{dataset}}.tsv"
    conda:
        "../../environment.yml"
    threads: 2
    resources:
        mem_mb=3000,
        runtime=60,
    params:
        code=source_digest("dpfl.features.scattering"),
    shell:
        "dpfl features --dataset {wildcards.dataset:q} --config {input.config:q} 2> {log:q}"
