"""json as text; the expected values are those of a server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pgtypes import json_text
from gateway.pgtypes.errors import EvaluationError

LETTERS = 'ab"\\/\n\t\x01\x7fé日𝄞'


def test_of_repeated_keys_the_last_counts() -> None:
    assert json_text.field(b'{"a" : 1 , "a" : [ 2 ]}', b"a") == b"[ 2 ]"
    assert json_text.field_text(b'{"a": 1, "a": null}', b"a") is None


def test_of_a_path_the_last_whole_match_counts() -> None:
    assert json_text.path(b'{"a":{"b":1},"a":{"c":2}}', (b"a", b"b")) == b"1"


def test_a_negative_step_is_counted_in_the_first_array_at_its_level() -> None:
    """As the server does, even where that array is not on the path."""
    assert json_text.path(b"[[1,2,3],[4,5]]", (b"1", b"-1")) is None
    assert json_text.path(b"[[4,5],[1,2,3]]", (b"1", b"-1")) == b"2"


def test_blanks_stay_inside_and_go_outside_but_before_a_scalar() -> None:
    assert json_text.path(b' { "a" : 1 } ', ()) == b'{ "a" : 1 }'
    assert json_text.path(b" 5 ", ()) == b" 5"
    assert json_text.path_text(b' "a" ', ()) == b"a"


def test_numbers_stay_as_they_were_written() -> None:
    assert json_text.element_text(b"[1E5, -0, 1.50]", 0) == b"1E5"
    assert json_text.element_text(b"[1E5, -0, 1.50]", 1) == b"-0"
    assert json_text.element(b"[" + b"9" * 5000 + b"]", -1) == b"9" * 5000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (rb'{"a":"\u0000","b":1}', "unsupported Unicode escape sequence"),
        (rb'{"b":1,"a":"\ud834"}', "invalid input syntax for type json"),
        (rb'{"b":1,"\udd1e":2}', "invalid input syntax for type json"),
        (rb'["\ud834\u0000"]', "invalid input syntax for type json"),
        (rb'["\u0000\ud834"]', "unsupported Unicode escape sequence"),
        (rb'["\ud834","\udd1e"]', "invalid input syntax for type json"),
        (rb'"\ud834\ud834\udd1e"', "invalid input syntax for type json"),
    ],
)
def test_an_escape_that_is_no_text_fails_wherever_it_stands(text: bytes, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        json_text.field(text, b"b")


def test_an_escaped_backslash_before_u_is_no_escape() -> None:
    assert json_text.field_text(rb'{"a":"\\u0000"}', b"a") == rb"\u0000"


def test_escapes_are_not_looked_at_for_type_and_length() -> None:
    assert json_text.typeof(rb' "\u0000"') == b"string"
    assert json_text.array_length(rb'["\u0000"]') == 1


@pytest.mark.parametrize("text", [b"{}", b"5"])
def test_only_an_array_has_a_length(text: bytes) -> None:
    with pytest.raises(EvaluationError, match="cannot get array length of a"):
        json_text.array_length(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(LETTERS, max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", max_size=2), values), st.booleans(), st.booleans())
def test_every_member_is_found(value: dict[str, object], ascii_only: bool, wide: bool) -> None:
    separators = (" , ", "\t:\n") if wide else (",", ":")
    text = json.dumps(value, ensure_ascii=ascii_only, separators=separators).encode()
    for key, item in value.items():
        found = json_text.field(text, key.encode())
        assert found is not None
        assert json.loads(found) == item
        shown = json_text.field_text(text, key.encode())
        assert (shown is None) is (item is None)
        assert not isinstance(item, str) or shown == item.encode()
