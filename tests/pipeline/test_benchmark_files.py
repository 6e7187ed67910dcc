import math

import pytest

from dpfl.pipeline.cost import read_benchmark

NAN = math.nan


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("s\tcpu_time\tmax_rss\n30.0\t4.0\t200.5\n", (30.0, 4.0, 200.5)),
        ("s\tcpu_time\tmax_rss\n1.0\t1.0\t1.0\n300.0\t140.0\t200.5\n", (300.0, 140.0, 200.5)),  # the last try
        ("s\tcpu_time\tmax_rss\n", (NAN, NAN, NAN)),
        ("s\tcpu_time\tmax_rss\n1\tNA\t-\n", (1.0, NAN, NAN)),
        ("s\n1.2.3\n", (NAN, NAN, NAN)),
        ("", (NAN, NAN, NAN)),
    ],
)
def test_what_was_measured_is_read_and_the_rest_is_missing(tmp_path, text, found):
    (tmp_path / "x.tsv").write_text(text)
    assert read_benchmark(tmp_path / "x.tsv") == pytest.approx(found, nan_ok=True)
    assert all(map(math.isnan, read_benchmark(tmp_path / "absent.tsv")))
