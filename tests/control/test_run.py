"""What a failed run says last."""

from dpfl.control.run import explain

LOG = """Select jobs to execute...
[Fri Nov 20 12:00:00 2026]
rule train:
    output: results/demo/runs/x.csv
[Fri Nov 20 12:00:01 2026]
Error in rule train:
    message: None
    jobid: 3
    output: results/demo/runs/x.csv
    log: {log} (check log file(s) for error details)
    shell:
        dpfl train --paper bhaskar2025
[Fri Nov 20 12:00:02 2026]
Finished jobid: 4 (Rule: tables)
Exiting because a job execution failed. Look below for error messages
"""


def test_the_rule_and_the_last_lines_of_its_log_are_named(tmp_path):
    own = tmp_path / "a folder" / "train.log"
    own.parent.mkdir()
    own.write_text("".join(f"line {number}\n" for number in range(20)))
    lines = list(explain(LOG.format(log=own)))
    assert lines == [f"dpfl: rule train failed; {own} ends with:", *(f"  line {number}" for number in range(15, 20))]


def test_a_log_that_is_not_there_and_a_run_without_failure():
    assert list(explain(LOG.format(log="gone.log"))) == ["dpfl: rule train failed; gone.log ends with:"]
    assert list(explain("nothing\n")) == [] and list(explain("")) == []
