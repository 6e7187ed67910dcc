"""A pattern matches the names that it was made of, and no other."""

import re

from hypothesis import given
from hypothesis import strategies as st

from dpfl.grid import configuration, expansion
from dpfl.pipeline.plan import any_of, names

WORDS = st.sets(st.from_regex(r"[a-c]{0,2}(_[a-c0.]{0,2}){0,3}", fullmatch=True), max_size=12)


@given(WORDS, WORDS)
def test_exactly_the_names(some, others):
    for make in (any_of, names):
        pattern = re.compile(make(sorted(some)))
        assert {word for word in some | others if pattern.fullmatch(word)} == some


def test_seeds_of_a_job_are_written_once():
    config = configuration.resolve({"scale": "paper", "seeds": list(range(50))})
    jobs = [f"{job.paper}/{job.name}" for job in expansion.expand(config)]
    assert len(jobs) > 4000 and len(names(jobs)) < 20_000 < len(any_of(jobs)) / 10
