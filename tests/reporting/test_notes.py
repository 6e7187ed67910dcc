import pandas as pd

from dpfl.reporting.display_names import count_range, data_name, data_note, stand_ins

DATA = pd.DataFrame(
    {"dataset": ["digits", "mnist", "digits"], "stand_in_for": ["mnist", "", "mnist"], "runs": [3, 2, 3]}
)


def test_counts_are_one_number_or_a_range():
    assert [count_range(pd.Series(counts)) for counts in ([4, 4], [4.0, 2.0])] == ["4", "2 to 4"]
    assert count_range(pd.Series(dtype=float)) == "0"


def test_stand_ins_are_named():
    assert stand_ins(DATA) == ["digits"] and stand_ins(DATA[1:2]) == []
    assert data_name("digits", "mnist") == "Digits (stand-in for MNIST)"
    assert (data_name("fashion_mnist", ""), data_name("mnist", "cifar10")) == (
        "Fashion-MNIST", "MNIST (stand-in for CIFAR-10)"
    )  # fmt: skip
    assert data_note(DATA) == "2 to 3 runs a point on Digits (stand-in for MNIST), MNIST; intervals: 90 %."
    assert data_note(DATA[:0]) == "0 runs a point on no data; intervals: 90 %."
