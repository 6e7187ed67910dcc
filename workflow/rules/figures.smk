# Figures, each with its data as CSV, drawn from that CSV as SVG, PDF and PNG.


rule figures:
    input:
        runs_of,
    output:
        csv=f"{RESULTS}/figures/{{paper}}_{{name}}.csv",
        svg=report(
            f"{RESULTS}/figures/{{paper}}_{{name}}.svg",
            caption="../report/figure.rst",
            category="{paper}",
            subcategory="Figures",
            labels={"figure": "{name}"},
        ),
        pdf=f"{RESULTS}/figures/{{paper}}_{{name}}.pdf",
        png=f"{RESULTS}/figures/{{paper}}_{{name}}.png",
        record=f"{RESULTS}/figures/{{paper}}_{{name}}.csv.record.json",
    log:
        f"{RESULTS}/logs/figures_{{paper}}_{{name}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/figures_{{paper}}_{{name}}.tsv"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=more(1500),
        runtime=more(20),
    params:
        config=RESOLVED,
        title=lambda wildcards: PAPERS[wildcards.paper].figures[wildcards.name]["title"],
        caption=lambda wildcards: PAPERS[wildcards.paper].figures[wildcards.name]["caption"],
        facts=lambda wildcards: digest_of(PAPERS[wildcards.paper].tables),
        code=lambda wildcards: source_digest(f"dpfl.papers.{wildcards.paper}.figures", "dpfl.reporting.figures"),
    shell:
        "dpfl figures --paper {wildcards.paper:q} --name {wildcards.name:q} --config {params.config:q} 2> {log:q}"
