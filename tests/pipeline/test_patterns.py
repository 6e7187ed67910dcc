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


def test_seeds_of_a_sweep_are_written_once():
    config = configuration.resolve({"scale": "paper", "seeds": list(range(50))})
    sweeps = [f"{sweep.paper}/{sweep.name}" for sweep in expansion.expand(config)]
    assert len(sweeps) > 4000 and len(names(sweeps)) < 20_000 < len(any_of(sweeps)) / 10
