# Tables, each as CSV with every digit and as Markdown, LaTeX and HTML for readers.


rule tables:
    input:
        runs_of,
    output:
        csv=f"{RESULTS}/tables/{{paper}}_{{name}}.csv",
        markdown=f"{RESULTS}/tables/{{paper}}_{{name}}.md",
        latex=f"{RESULTS}/tables/{{paper}}_{{name}}.tex",
        html=report(
            f"{RESULTS}/tables/{{paper}}_{{name}}.html",
            caption="../report/table.rst",
            category="{paper}",
            subcategory="Tables",
            labels={"table": "{name}"},
        ),
        record=f"{RESULTS}/tables/{{paper}}_{{name}}.csv.record.json",
    log:
        f"{RESULTS}/logs/tables_{{paper}}_{{name}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/tables_{{paper}}_{{name}}.tsv"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=more(1000),
        runtime=more(20),
    params:
        config=RESOLVED,
        title=lambda wildcards: PAPERS[wildcards.paper].tables[wildcards.name]["title"],
        caption=lambda wildcards: PAPERS[wildcards.paper].tables[wildcards.name]["caption"],
        facts=lambda wildcards: digest_of(PAPERS[wildcards.paper].tables),
        code=lambda wildcards: source_digest(f"dpfl.papers.{wildcards.paper}.tables", "dpfl.reporting.tables"),
    shell:
        "dpfl tables --paper {wildcards.paper:q} --name {wildcards.name:q} --config {params.config:q} 2> {log:q}"
