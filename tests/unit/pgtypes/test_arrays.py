"""Arrays as text and compared. Expected: PostgreSQL 16 and 18."""

from __future__ import annotations

import pytest

from gateway.errors import ValueFormatError
from gateway.pgtypes.array_functions import concatenate, prepend, trim
from gateway.pgtypes.arrays import EMPTY, Array, one_dimension, parse_array, stack
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.integers import parse_integer


def integers(text: bytes) -> Array:
    return parse_array(text, parse_integer)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"{}", EMPTY),
        (b"{1}", Array((1,), (1,), (1,))),
        (b"{1,NULL,-3}", Array((3,), (1,), (1, None, -3))),
        (b"{{1,2},{3,4},{5,6}}", Array((3, 2), (1, 1), (1, 2, 3, 4, 5, 6))),
        (b"[0:1]={7,8}", Array((2,), (0,), (7, 8))),
        (b"[-2:-1][3:3]={{1},{2}}", Array((2, 1), (-2, 3), (1, 2))),
    ],
)
def test_an_array_is_read_as_it_is_printed(text: bytes, expected: Array) -> None:
    assert integers(text) == expected


def test_elements_may_be_quoted() -> None:
    found = parse_array(b'{a,"b c","d\\"e\\\\f","","NULL",NULL,"{,}"}', bytes)

    assert found.items == (b"a", b"b c", b'd"e\\f', b"", b"NULL", None, b"{,}")


@pytest.mark.parametrize(
    "text",
    [b"", b"1", b"{", b"{1", b"{1,}", b"{,1}", b"{1}x", b"{1}}", b"{{1},{2,3}}", b"{1,{2}}",
     b"{{1},2}", b'{"1}', b'{"1"2}', b"[0:1]={1}", b"[0]={1}", b"[a:b]={1}", b"[0:0]", b"{x}"],
)  # fmt: skip
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError):
        integers(text)


@pytest.mark.parametrize(
    "texts",
    [
        # Each is less than all that follow.
        (b"{}", b"{1}", b"[2:2]={1}", b"{{1}}", b"{1,1}", b"{{1},{1}}", b"{1,2}", b"{1,NULL}",
         b"{2}", b"{NULL}", b"{NULL,1}"),
    ],
)  # fmt: skip
def test_arrays_have_the_order_of_array_cmp(texts: tuple[bytes, ...]) -> None:
    arrays = [integers(text) for text in texts]

    for place, array in enumerate(arrays):
        assert all(array < later and later > array for later in arrays[place + 1 :])
        assert all(array <= later and later >= array for later in arrays[place:])
        assert all(array != later for later in arrays[place + 1 :])


def test_arrays_stack_to_one_dimension_more() -> None:
    row = integers(b"[0:1]={1,2}")

    assert stack([row, row]) == integers(b"[1:2][0:1]={{1,2},{1,2}}")
    assert stack([EMPTY, None]) == EMPTY
    for other in (None, EMPTY, integers(b"{1,2}"), integers(b"{1}")):
        with pytest.raises(EvaluationError, match="matching dimensions"):
            stack([row, other])


def test_there_are_at_most_six_dimensions() -> None:
    array = one_dimension([1])
    for _ in range(5):
        array = stack([array])

    with pytest.raises(EvaluationError, match=r"\(7\) exceeds the maximum allowed \(6\)"):
        stack([array])


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (b"{1}", b"{2}", b"{1,2}"),
        (b"[5:5]={1}", b"{2}", b"[5:6]={1,2}"),
        (b"{}", b"[5:5]={1}", b"[5:5]={1}"),
        (b"{{1,2}}", b"{3,4}", b"{{1,2},{3,4}}"),
        (b"{1,2}", b"[4:4][1:2]={{3,4}}", b"[4:5][1:2]={{1,2},{3,4}}"),
        (b"{{1}}", b"{{2},{3}}", b"{{1},{2},{3}}"),
    ],
)
def test_arrays_are_concatenated(left: bytes, right: bytes, expected: bytes) -> None:
    assert concatenate(integers(left), integers(right)) == integers(expected)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (b"{1}", b"{{{1}}}"),
        (b"{1,2}", b"{{1}}"),
        (b"[0:0]={1}", b"{{1}}"),
        (b"{{1}}", b"{{1,2}}"),
    ],
)
def test_arrays_of_other_shapes_are_not(left: bytes, right: bytes) -> None:
    with pytest.raises(EvaluationError, match="cannot concatenate incompatible arrays"):
        concatenate(integers(left), integers(right))


def test_a_bound_beyond_the_integers_is_an_error() -> None:
    lowest = integers(b"[-2147483648:-2147483648]={1}")

    with pytest.raises(EvaluationError, match="integer out of range"):
        prepend(0, lowest)


def test_trimming_keeps_the_first_rows() -> None:
    assert trim(integers(b"{{1,2},{3,4}}"), 1) == integers(b"{{1,2}}")
    assert trim(integers(b"[5:6]={1,2}"), 0) == integers(b"{1,2}")
    with pytest.raises(EvaluationError, match="must be between 0 and 2"):
        trim(integers(b"{1,2}"), 3)
