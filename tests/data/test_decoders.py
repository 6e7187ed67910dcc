"""The strict readers: the right answer or InputError, whatever the bytes."""

import io
import math
import struct

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import LabelEncoder

from dpfl.data import datasets
from dpfl.data.decoders import cifar, csv_table, idx, idx_labels
from dpfl.errors import InputError

INSURANCE = datasets.load("insurance")
HEADER = "age,sex,bmi,children,smoker,region,charges\n"
ROWS = ["19,female,27.9,0,yes,southwest,16884.924\n", "18,male,33.77,1,no,southeast,1725.5523\n"]


def insurance(data: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Read the insurance table as its entry describes it."""
    return csv_table(data, INSURANCE.columns, INSURANCE.target, name)


def idx_bytes(array: np.ndarray) -> bytes:
    """Return the IDX file of an array, written from the format's description."""
    return bytes((0, 0, 8, array.ndim)) + b"".join(struct.pack(">I", n) for n in array.shape) + array.tobytes()


shapes = st.lists(st.integers(1, 6), min_size=1, max_size=3)


@settings(max_examples=50, deadline=None)
@given(shapes, st.randoms(use_true_random=False))
def test_idx_gives_back_what_was_written(shape, random):
    array = np.frombuffer(random.randbytes(math.prod(shape)), np.uint8).reshape(shape)
    assert np.array_equal(idx(idx_bytes(array), len(shape), "f"), array)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_idx_of_any_bytes_is_refused_or_exact(data):
    """What is accepted, written again, gives the same bytes: nothing was dropped, padded or guessed."""
    head = data.draw(st.sampled_from([b"", b"\0\0\x08\1", b"\0\0\x08\3", b"\0\0\x08\1\0\0\0\2", b"\0\0\x0d\1"]))
    raw = head + data.draw(st.binary(max_size=40))
    dimensions = data.draw(st.sampled_from([1, 3]))
    try:
        array = idx(raw, dimensions, "f")
    except InputError:
        return
    assert array.ndim == dimensions and idx_bytes(array) == raw


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not an IDX file"),
        (b"\0\0\x08\3" + bytes(11), "not an IDX file"),
        (b"\0\0\x0b\1\0\0\0\1\7", "begins with '00 00 0b 01'"),
        (b"\0\0\x08\1\0\0\0\2\7", "9 bytes long.*promises 10"),
        (b"\0\0\x08\1\0\0\0\1\7\7", "10 bytes long.*promises 9"),
        (b"\0\0\x08\1\0\0\0\0", "shape \\(0,\\)"),
        (b"\0\0\x08\1\xff\xff\xff\xff\7", "promises 4294967303"),
        (b"\0\0\x08\1\0\0\0\2\7\x0a", "record 1 has label 10"),
    ],
)
def test_idx_labels_say_what_is_wrong(raw, says):
    with pytest.raises(InputError, match=f"^train-labels.*{says}"):
        idx_labels(raw, 10, "train-labels")


def test_idx_sizes_do_not_overflow():
    with pytest.raises(InputError, match=str(16 + (2**32 - 1) ** 3)):
        idx(b"\0\0\x08\3" + b"\xff" * 12 + bytes(16), 3, "f")


def test_cifar_gives_channels_rows_and_columns():
    """Record: label, then 1,024 red, green and blue values, each row by row (the dataset's own description)."""
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3072), dtype=np.uint8)
    raw = b"".join(bytes([label]) + row.tobytes() for label, row in zip([3, 0, 9, 1, 3], pixels, strict=True))
    images, labels = cifar(raw, 10, "f")
    assert labels.tolist() == [3, 0, 9, 1, 3] and labels.dtype == np.int64
    assert images.shape == (5, 3, 32, 32) and images.dtype == np.uint8
    for record, channel, row, column in [(0, 0, 0, 0), (4, 2, 31, 31), (2, 1, 7, 19)]:
        assert images[record, channel, row, column] == pixels[record, 1024 * channel + 32 * row + column]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 3), st.integers(-2, 2), st.randoms(use_true_random=False))
def test_cifar_of_any_bytes_is_refused_or_exact(records, extra, random):
    raw = random.randbytes(max(0, records * 3073 + extra))
    if records and not extra and random.random() < 0.5:
        raw = b"".join(bytes([random.randrange(10)]) + raw[3073 * i + 1 : 3073 * (i + 1)] for i in range(records))
    right = bool(raw) and len(raw) % 3073 == 0 and all(label < 10 for label in raw[::3073])
    if not right:
        with pytest.raises(InputError, match=r"^f"):
            cifar(raw, 10, "f")
        return
    images, labels = cifar(raw, 10, "f")
    again = b"".join(bytes([label]) + image.tobytes() for label, image in zip(labels.tolist(), images, strict=True))
    assert again == raw


def label_encoded(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y by pandas and scikit-learn, the route that the published experiments took."""
    table = pd.read_csv(io.StringIO(text))
    for column in ("sex", "smoker", "region"):
        table[column] = LabelEncoder().fit_transform(table[column])
    return table[list(INSURANCE.columns)].to_numpy(float), table["charges"].to_numpy(float)


def insurance_rows():
    numbers = st.floats(0, 1e6).map(lambda number: f"{number:.5f}")
    words = [st.sampled_from(kinds) for kinds in (["female", "male"], ["no", "yes"])]
    region = st.sampled_from(["northeast", "northwest", "southeast", "southwest"])
    ages = st.integers(0, 99).map(str)
    return st.tuples(ages, words[0], numbers, ages, words[1], region, numbers).map(",".join)


EVERY_CATEGORY = [
    "1,female,1,1,no,northeast,1",
    "2,male,2,2,yes,northwest,2",
    "3,male,3,3,yes,southeast,3",
    "4,male,4,4,yes,southwest,4",
]


@settings(max_examples=50, deadline=None)
@given(st.lists(insurance_rows(), max_size=6), st.sampled_from(["\n", "\r\n"]))
def test_insurance_agrees_with_pandas_and_scikit_learn(rows, newline):
    text = newline.join([HEADER.strip(), *EVERY_CATEGORY, *rows])
    x, y = insurance(text.encode(), "f")
    expected_x, expected_y = label_encoded(text)
    np.testing.assert_allclose(x, expected_x, rtol=1e-15)
    np.testing.assert_allclose(y, expected_y, rtol=1e-15)
    assert x.dtype == y.dtype == np.float64


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_insurance_of_any_bytes_is_refused_or_exact(data):
    """Noise after the header, or a bite out of a good table: refused, or what a plain split of the text says."""
    good = (HEADER + "".join(ROWS)).encode()
    place = data.draw(st.integers(0, len(good)))
    noise = data.draw(
        st.one_of(st.binary(max_size=6), st.sampled_from([b"1_0", b"nan", b"inf", b"1e999", b'"', b"\0"]))
    )
    raw = good[:place] + noise + good[place + data.draw(st.integers(0, 4)) :]
    try:
        x, y = insurance(raw, "f")
    except InputError as error:
        assert "\n" not in str(error)
        return
    codes = {"female": 0, "male": 1, "no": 0, "yes": 1, "northeast": 0, "northwest": 1, "southeast": 2, "southwest": 3}
    lines = [line for line in raw.decode().replace('"', "").splitlines()[1:]]
    table = np.array([[float(codes.get(cell, cell)) for cell in line.split(",")] for line in lines])
    assert np.array_equal(np.column_stack([x, y]), table) and np.isfinite(table).all()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEADER + ROWS[0] + ROWS[1].replace("33.77", ""), "f, row 2, column bmi: the cell is missing"),
        (HEADER + ROWS[0] + ROWS[1].replace("33.77", "tall"), "f, row 2, column bmi: 'tall' is not a finite number"),
        (HEADER + ROWS[0].replace("27.9", "nan"), "f, row 1, column bmi: 'nan' is not"),
        (HEADER + ROWS[0].replace("27.9", "1_0"), "f, row 1, column bmi: '1_0' is not"),
        (HEADER + ROWS[0].replace("27.9", "1e999"), "f, row 1, column bmi: '1e999' is not"),
        (HEADER + ROWS[0].replace("southwest", "north"), "f, row 1, column region: 'north' is none of northeast"),
        (HEADER + "19,female,27.9\n", "f, row 1, column children: the cell is missing"),
        (HEADER + ROWS[0].strip() + ",7\n", "f, row 1: 8 cells"),
        (HEADER + ROWS[0] + "\n" + ROWS[1], "f, row 2, column age: the cell is missing"),
        (HEADER, "f holds no records"),
        ("", "f must begin with the header age,sex"),
        (HEADER.replace("bmi", "BMI") + ROWS[0], "found 'age,sex,BMI"),
        (HEADER + '1,"female', "f is not a CSV file"),
    ],
)
def test_insurance_names_the_row_and_the_column(text, says):
    with pytest.raises(InputError) as error:
        insurance(text.encode(), "f")
    assert says in str(error.value) and "\n" not in str(error.value)


def test_insurance_refuses_another_encoding():
    with pytest.raises(InputError, match="not a CSV file in UTF-8"):
        insurance((HEADER + "é").encode("latin-1"), "f")
