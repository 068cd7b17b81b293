"""Messages of errors of row filters."""

from __future__ import annotations

import pytest

from gateway.rowfilter import FilterEvaluationError


@pytest.mark.parametrize("value", ["ann", 'ann" and "bob', 'ann"bob', 'ann"\n"bob', "Jürgen"])
def test_a_message_shows_no_part_of_a_value_that_the_server_quotes(value: str) -> None:
    error = FilterEvaluationError(f'no integer: "{value}"', None, sqlstate="22P02")

    assert error.message == "row filter: no integer: ... (SQLSTATE 22P02)"


@pytest.mark.parametrize(
    "reason",
    [
        "syntaxe en entrée invalide pour le type integer : « ann »",
        "ungültige Eingabesyntax für Typ integer: „ann“",
        "sintaxis de entrada no valida: «ann»",
    ],
)
def test_a_message_in_another_language_shows_no_value(reason: str) -> None:
    error = FilterEvaluationError(reason, None, sqlstate="22P02")

    assert error.message == "row filter: SQLSTATE 22P02"


@pytest.mark.parametrize("value", ["0xe4", "0xe2 0x82 0xac", "1114112", "12.5", "-7", "1e300"])
def test_a_message_shows_no_number_and_no_byte_of_a_value(value: str) -> None:
    error = FilterEvaluationError(f"no character: {value}", None, sqlstate="22021")

    digits = {character for character in error.message if character.isdigit()}
    assert digits <= set("22021")
    assert "0x" not in error.message
