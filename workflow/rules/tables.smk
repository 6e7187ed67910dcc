# Tables, each as CSV with every digit and as Markdown, LaTeX and HTML for readers. One job makes all of a paper's: most
# of what a single one would take goes into starting Python.

for _paper, _said in PAPERS.items():

    rule:
        name:
            f"tables_{_paper}"
        input:
            runs_of(_paper),
        output:
            pages(_paper, "tables", "csv", "md", "tex", "csv.record.json", "rst"),
            *[
                report(
                    path,
                    caption=caption_of(path),
                    category=_paper,
                    subcategory="Tables",
                    labels={"table": name},
                )
                for name, path in zip(_said.tables, pages(_paper, "tables", "html"))
            ],
        log:
            f"{RESULTS}/logs/tables_{_paper}.log",
        benchmark:
            f"{RESULTS}/benchmarks/tables_{_paper}.tsv"
        conda:
            "../../environment.yml"
        resources:
            mem_mb=more(1500),
            runtime=more(30),
        params:
            paper=_paper,
            config=RESOLVED,
            said=digest_of(_said.tables),
            code=lambda wildcards, paper=_paper: source_digest(f"dpfl.papers.{paper}.tables", "dpfl.reporting.tables"),
        shell:
            "dpfl tables --paper {params.paper:q} --config {params.config:q} 2> {log:q}"
