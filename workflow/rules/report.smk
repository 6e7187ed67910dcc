# Verdicts on the papers' claims. results/<scale>/report.html is made by `dpfl report` once everything here is done.


rule claims:
    input:
        evidence_of,
    output:
        csv=f"{RESULTS}/claims/{{paper}}.csv",
        evidence=f"{RESULTS}/claims/{{paper}}_evidence.csv",
        html=report(
            f"{RESULTS}/claims/{{paper}}.html",
            caption="../report/claims.rst",
            category="{paper}",
            subcategory="Claims",
            labels={"claims": "verdicts"},
        ),
        record=f"{RESULTS}/claims/{{paper}}.csv.record.json",
    log:
        f"{RESULTS}/logs/claims_{{paper}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/claims_{{paper}}.tsv"
    resources:
        mem_mb=more(1000),
        runtime=more(20),
    params:
        config=RESOLVED,
        facts=lambda wildcards: digest_of(PAPERS[wildcards.paper].claims),
        paper=lambda wildcards: PAPERS[wildcards.paper].title,
        command=own_digest("dpfl.cli.app", "dpfl.cli.report_commands"),
        code=lambda wildcards: source_digest(f"dpfl.papers.{wildcards.paper}.claims", "dpfl.reporting.claims"),
    shell:
        f"{DPFL} claims --paper {{wildcards.paper:q}} --config {{params.config:q}} 2> {{log:q}}"
