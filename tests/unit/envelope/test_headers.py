"""The headers of a record."""

from __future__ import annotations

from gateway.envelope.headers import HeaderMaker

COMMIT_LSN = 0x16_B374D848


def test_a_change_has_position_transaction_number_and_operation() -> None:
    maker = HeaderMaker(COMMIT_LSN, 745)

    assert maker.make(0x16_B374D800, 3, b"u") == [
        ("lsn", b"00000016/B374D800"),
        ("commit_lsn", b"00000016/B374D848"),
        ("xid", b"745"),
        ("seq", b"3"),
        ("op", b"u"),
    ]


def test_a_snapshot_record_has_no_xid() -> None:
    maker = HeaderMaker(COMMIT_LSN, None)

    assert maker.make(COMMIT_LSN, 0, b"r") == [
        ("lsn", b"00000016/B374D848"),
        ("commit_lsn", b"00000016/B374D848"),
        ("seq", b"0"),
        ("op", b"r"),
    ]


def test_a_half_of_a_key_change_says_which_half() -> None:
    headers = HeaderMaker(COMMIT_LSN, 745).make(COMMIT_LSN, 1, b"d", b"old")

    assert headers[-1] == ("rekey", b"old")


def test_origin_and_gid_are_utf8_and_come_last() -> None:
    maker = HeaderMaker(COMMIT_LSN, 745, "größe", "tx-1")

    assert maker.make(COMMIT_LSN, 1, b"c", b"new")[-3:] == [
        ("rekey", b"new"),
        ("origin", "größe".encode()),
        ("gid", b"tx-1"),
    ]


def test_a_change_in_another_4_gib_than_its_commit_keeps_its_own_lsn() -> None:
    headers = HeaderMaker(0x17_00000010, 745).make(0x16_FFFFFF00, 1, b"c")

    assert headers[0] == ("lsn", b"00000016/FFFFFF00")


def test_a_large_seq_is_decimal_without_padding() -> None:
    headers = HeaderMaker(COMMIT_LSN, 4294967295).make(COMMIT_LSN, 2_000_001, b"c")

    assert headers[2:4] == [("xid", b"4294967295"), ("seq", b"2000001")]


def test_a_marker_names_its_kind_as_operation() -> None:
    assert ("op", b"PROGRESS") in HeaderMaker(1, None).make(1, 0, b"PROGRESS")


def test_each_record_has_a_list_of_its_own() -> None:
    maker = HeaderMaker(COMMIT_LSN, 745, "o")

    assert maker.make(1, 1, b"c") is not maker.make(1, 1, b"c")
