# Tables, each as CSV with every digit and as Markdown, LaTeX and HTML for readers; figures, each with its data as CSV and
# drawn from that CSV as SVG, PDF and PNG. One job makes all tables of a paper and one all its figures: most of what a
# single page would take goes into starting Python. The pages differ from paper to paper: hence a rule for each.
SHOWN = {"tables": "html", "figures": "svg"}
PAGES = {"tables": ["md", "tex"], "figures": ["pdf", "png"]}
# The parts of paper.yaml and errata.yaml that a page is made from: figures show numbers that the tables publish, but
# not their captions.
MADE_FROM = {"tables": ["settings", "tables", "errata"], "figures": ["settings", "tables", "figures"]}

for _paper, _kind in itertools.product(PAPERS, SHOWN):

    rule:
        name:
            f"{_kind}_{_paper}"
        input:
            runs_of(_paper),
        output:
            pages(_paper, _kind, "csv", "csv.record.json", "rst", *PAGES[_kind]),
            *[
                report(
                    path,
                    caption=caption_of(path),
                    category=_paper,
                    subcategory=_kind.capitalize(),
                    labels={_kind.removesuffix("s"): name},
                )
                for name, path in zip(getattr(PAPERS[_paper], _kind), pages(_paper, _kind, SHOWN[_kind]))
            ],
        log:
            f"{RESULTS}/logs/{_kind}_{_paper}.log",
        benchmark:
            f"{RESULTS}/benchmarks/{_kind}_{_paper}.tsv"
        resources:
            mem_mb=more(1500),
            runtime=more(30),
        params:
            paper=_paper,
            kind=_kind,
            config=RESOLVED,
            facts=digest_of([facts_of(_paper, part, part == _kind) for part in MADE_FROM[_kind]]),
            command=own_digest("dpfl.cli.app", "dpfl.cli.report_commands"),
            code=source_digest(*recipe_code(_paper, _kind), f"dpfl.reporting.{_kind}"),
        shell:
            f"{DPFL} {{params.kind:q}} --paper {{params.paper:q}} --config {{params.config:q}} 2> {{log:q}}"
