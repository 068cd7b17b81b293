"""Documents of jsonb; the expected values are those of a server, or of the manual's examples."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ValueFormatError
from gateway.pgtypes import json_text, jsonb, jsonb_access, jsonb_modify, jsonpath_exec
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.jsonb import MAX_DEPTH, Jsonb, read_jsonb
from gateway.pgtypes.jsonpath import read_jsonpath

LETTERS = 'ab"\\/\n\t\x01\x7fé日𝄞'


def doc(text: str) -> Jsonb:
    return read_jsonb(text.encode())


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("1.0", "1.00", True),
        ("1", "true", False),
        ("0", "false", False),
        ("[1, true]", "[true, 1]", False),
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": 1, "b": 2}', '{"a": 1.0, "b": 2}', True),
        ("null", "null", True),
        ("[]", "{}", False),
        ('"1"', "1", False),
        ("[[]]", "[{}]", False),
    ],
)
def test_equality_tells_types_apart_and_not_scales(left: str, right: str, equal: bool) -> None:
    assert (doc(left) == doc(right)) is equal
    assert not equal or hash(doc(left)) == hash(doc(right))
    assert (doc(right) in frozenset([doc(left)])) is equal


def test_the_order_of_types_is_the_manuals() -> None:
    """Object > Array > Boolean > Number > String > null; the empty array is an exception."""
    texts = ["[]", "null", '"a"', '"b"', "1", "2", "false", "true", "[1]", "[1, 2]", "{}"]
    texts += ['{"a": 1}', '{"b": 1}', '{"a": 1, "b": 2}']

    assert sorted(map(doc, reversed(texts))) == [doc(text) for text in texts]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1.00, "b": [1, 2, {"c": null}], "aa": true}',
        '"a\\n\\"\\\\\\u0001é𝄞\x7f/"',
        "[]",
        "{}",
        "-0.50",
        "100000000000000000000000000000000000000000",
    ],
)
def test_the_text_comes_back_as_it_was_printed(text: str) -> None:
    assert jsonb.print_jsonb(doc(text).value) == text


def test_the_scale_of_a_number_stays() -> None:
    document = doc('{"price": 1.00}')

    assert jsonb_access.field_text(document, b"price") == b"1.00"


@pytest.mark.parametrize("text", ["", "nul", "[1", '{"a" 1}', "NaN", "Infinity", "1 2", "'a'"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueFormatError):
        doc(text)


@pytest.mark.parametrize(
    ("document", "part", "contained"),
    [
        # manual, "jsonb Containment and Existence"
        ('"foo"', '"foo"', True),
        ("[1, 2, 3]", "[1, 3]", True),
        ("[1, 2, 3]", "[3, 1]", True),
        ("[1, 2, 3]", "[1, 2, 2]", True),
        ('{"product": "P", "version": 9.4, "jsonb": true}', '{"version": 9.4}', True),
        ("[1, 2, [1, 3]]", "[1, 3]", False),
        ("[1, 2, [1, 3]]", "[[1, 3]]", True),
        ('{"foo": {"bar": "baz"}}', '{"bar": "baz"}', False),
        ('{"foo": {"bar": "baz"}}', '{"foo": {}}', True),
        ('["foo", "bar"]', '"bar"', True),
        ('"bar"', '["bar"]', False),
    ],
)
def test_containment_as_in_the_manual(document: str, part: str, contained: bool) -> None:
    assert jsonb_access.contains(doc(document), doc(part)) is contained


@pytest.mark.parametrize(
    ("step", "number"),
    [
        (b"1", 1),
        (b" \t+1", 1),
        (b"-0", 0),
        (b"000000000000000000001", 1),
        (b"2147483647", 2147483647),
        (b"-2147483648", -2147483648),
        (b"2147483648", None),
        (b"-2147483649", None),
        (b"99999999999999999999", None),
        (b"1 ", None),
        (b"", None),
        (b"-", None),
        (b"1a", None),
        (b"\xd9\xa1", None),
    ],
)
def test_subscripts_are_read_as_strtol_does(step: bytes, number: int | None) -> None:
    assert jsonb_access.parse_subscript(step) == number


def test_jsonb_set_as_in_the_manual() -> None:
    document = doc('[{"f1": 1, "f2": null}, 2, null, 3]')

    changed = jsonb_modify.set_path(document, (b"0", b"f1"), doc("[2, 3, 4]"), False)
    assert changed == doc('[{"f1": [2, 3, 4], "f2": null}, 2, null, 3]')
    changed = jsonb_modify.set_path(document, (b"0", b"f3"), doc("[2, 3, 4]"))
    assert changed.value[0] == doc('{"f1": 1, "f2": null, "f3": [2, 3, 4]}').value


def test_jsonb_insert_as_in_the_manual() -> None:
    document = doc('{"a": [0, 1, 2]}')

    inserted = jsonb_modify.insert_path(document, (b"a", b"1"), doc('"new_value"'))
    assert inserted == doc('{"a": [0, "new_value", 1, 2]}')
    inserted = jsonb_modify.insert_path(document, (b"a", b"1"), doc('"new_value"'), True)
    assert inserted == doc('{"a": [0, 1, "new_value", 2]}')
    with pytest.raises(EvaluationError, match="cannot replace existing key"):
        jsonb_modify.insert_path(document, (b"a",), doc("1"))


def test_documents_are_never_changed_in_place() -> None:
    text = '{"a": [1, {"b": 2}], "c": {"d": null}}'
    document = doc(text)

    jsonb_modify.set_path(document, (b"a", b"1", b"b"), doc("9"))
    jsonb_modify.delete_path(document, (b"a", b"0"))
    jsonb_modify.strip_nulls(document)
    jsonb_modify.concat(document, doc('{"z": 1}'))
    assert jsonb.print_jsonb(document.value) == text


def nested(depth: int) -> str:
    return '{"a": [' * (depth // 2) + "1" + "]}" * (depth // 2)


def test_documents_as_deep_as_can_be_read_can_be_evaluated() -> None:
    text = nested(MAX_DEPTH)
    one, other = doc(text), doc(text)

    assert one == other
    assert hash(one) == hash(other)
    assert jsonb.compare(one, other) == 0
    assert jsonb_access.contains(one, other)
    assert jsonb.print_jsonb(one.value) == text
    assert jsonb_modify.strip_nulls(one) == one
    assert json.loads(jsonb.pretty(one)) == json.loads(text)
    assert (
        json_text.strip_nulls(json_text.read_json(text.encode())) == text.replace(" ", "").encode()
    )
    assert json_text.path(text.encode(), (b"a", b"0", b"a")) is not None
    path = read_jsonpath(b"$.**{last}")
    assert jsonpath_exec.find(one, path) == [doc("1").value]
    steps = (b"a", b"0") * (MAX_DEPTH // 2)
    assert jsonb_modify.delete_path(one, steps) == doc(nested(MAX_DEPTH).replace("1", ""))


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 3000, 100_000])
def test_deeper_documents_are_refused_when_they_are_read(depth: int) -> None:
    for read in (read_jsonb, json_text.read_json):
        with pytest.raises(ValueFormatError, match="nested more than"):
            read(nested(depth).encode())


def test_brackets_in_strings_are_no_nesting() -> None:
    text = json.dumps(["[{" * 1000 + '"\\']).encode()

    assert read_jsonb(text) == Jsonb(["[{" * 1000 + '"\\'])


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(LETTERS, max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=8,
)


@given(documents)
def test_printing_then_reading_is_the_identity(value: object) -> None:
    document = doc(json.dumps(value, ensure_ascii=False))

    assert doc(jsonb.print_jsonb(document.value)) == document
    assert json.loads(jsonb.print_jsonb(document.value)) == value


@given(documents, documents, documents)
def test_the_order_is_one(a: object, b: object, c: object) -> None:
    one, two, three = (doc(json.dumps(value)) for value in (a, b, c))

    assert jsonb.compare(one, two) == -jsonb.compare(two, one)
    assert (jsonb.compare(one, two) == 0) is (one == two)
    if one <= two <= three:
        assert one <= three


@given(documents, documents)
def test_a_concatenation_of_arrays_contains_both(a: object, b: object) -> None:
    one, two = (doc(json.dumps([value])) for value in (a, b))

    both = jsonb_modify.concat(one, two)
    assert jsonb_access.contains(both, one)
    assert jsonb_access.contains(both, two)
