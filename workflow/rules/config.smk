# The commands read this file. Rules take it as `ancient`: what a stage depends on stands in its params instead,
# so that a change of the configuration reruns only what it touches.
rule resolved_config:
    output:
        RESOLVED,
    log:
        f"{RESULTS}/logs/config.log",
    conda:
        "../../environment.yml"
    params:
        json=json.dumps(CONFIG),
    shell:
        "dpfl config --json {params.json:q} --output {output:q} 2> {log:q}"
