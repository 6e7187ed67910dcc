from __future__ import annotations

import pytest

from dpfl.accounting.relations import Neighbouring, neighbouring_relation


@pytest.mark.parametrize("each", list(Neighbouring))
def test_a_relation_is_found_by_itself_and_by_its_text(each):
    assert neighbouring_relation(each) is each
    assert neighbouring_relation(each.value) is each


def test_an_unknown_relation_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="neighbouring must be one of 'add_or_remove', 'replace_one', 'zero_out'"):
        neighbouring_relation("add")
