# Figures, each with its data as CSV, drawn from that CSV as SVG, PDF and PNG. One job makes all of a paper's, as for
# tables.

for _paper, _said in PAPERS.items():

    rule:
        name:
            f"figures_{_paper}"
        input:
            runs_of(_paper),
        output:
            pages(_paper, "figures", "csv", "pdf", "png", "csv.record.json", "rst"),
            *[
                report(
                    path,
                    caption=caption_of(path),
                    category=_paper,
                    subcategory="Figures",
                    labels={"figure": name},
                )
                for name, path in zip(_said.figures, pages(_paper, "figures", "svg"))
            ],
        log:
            f"{RESULTS}/logs/figures_{_paper}.log",
        benchmark:
            f"{RESULTS}/benchmarks/figures_{_paper}.tsv"
        conda:
            "../../environment.yml"
        resources:
            mem_mb=more(1500),
            runtime=more(30),
        params:
            paper=_paper,
            config=RESOLVED,
            said=digest_of([_said.tables, _said.figures]),
            code=lambda wildcards, paper=_paper: source_digest(f"dpfl.papers.{paper}.figures", "dpfl.reporting.figures"),
        shell:
            "dpfl figures --paper {params.paper:q} --config {params.config:q} 2> {log:q}"
