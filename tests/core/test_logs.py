import logging
import sys

import pytest

from rmq.core.logs import (
    ADDRESS_LIMIT,
    FOREIGN_LIMIT,
    LINES,
    LINES_OF_ADDRESS,
    Foreign,
    LineFormatter,
    SparseLog,
    caused_by,
)


def record(second, message="closing %s", address=None):
    more = {} if address is None else caused_by(address)
    made = logging.makeLogRecord({"msg": message, "args": ("it",), **more})
    made.created = float(second)
    return made


def test_a_second_has_its_lines_and_the_next_one_says_how_many_are_missing():
    sparse = SparseLog()
    assert [sparse.filter(record(7)) for _ in range(LINES + 3)].count(True) == LINES
    later = record(8)
    assert sparse.filter(later)
    assert later.getMessage() == "closing it (3 more lines were suppressed)"
    assert sparse.filter(record(8))


def test_an_address_has_some_lines_of_each_kind_in_a_minute():
    sparse = SparseLog()

    def passed(second, *arguments):
        return [sparse.filter(record(second, *arguments)) for _ in range(8)].count(True)

    assert passed(60, "a %s", "1.2.3.4:5") == LINES_OF_ADDRESS
    assert passed(61, "a %s", "1.2.3.4:6") == 0, "another port is the same peer"
    assert passed(62, "b %s", "1.2.3.4:6") == LINES_OF_ADDRESS
    assert passed(63, "a %s", "5.6.7.8:6") == LINES_OF_ADDRESS
    assert passed(120, "a %s", "1.2.3.4:5") == LINES_OF_ADDRESS


def test_many_addresses_take_no_more_memory():
    sparse = SparseLog()
    passed = [
        sparse.filter(record(60 + i // LINES % 60, address=f"10.0.{i >> 8}.{i & 255}"))
        for i in range(3 * ADDRESS_LIMIT)
    ]
    assert len(sparse._by_address) <= ADDRESS_LIMIT + 1
    assert passed.count(True) <= 60 * LINES


@pytest.mark.parametrize(
    ("address", "host"),
    [("1.2.3.4:5", "1.2.3.4"), ("fd00::1:5", "fd00::1"), ("1.2.3.4", "1.2.3.4")],
)
def test_who_caused_a_line(address, host):
    assert caused_by(address) == {"address": host}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größe 日本", "größe 日本"),
        ("a\nb\r\x1b[2J\x00", r"a\nb\r\x1b[2J\x00"),
        ("\u202e\u2028\x85\ud800", r"\u202e\u2028\x85\ud800"),
        (b"a\n", r"b'a\n'"),
        ("x" * FOREIGN_LIMIT, "x" * FOREIGN_LIMIT),
        ("x" * 300, "x" * FOREIGN_LIMIT + "... (300 characters)"),
    ],
)
def test_foreign_text(text, shown):
    assert str(Foreign(text)) == shown


def test_escapes_count_too():
    assert len(str(Foreign("\n" * FOREIGN_LIMIT))) < FOREIGN_LIMIT + 30


def test_a_text_of_8_mib_is_not_walked_through():
    class Text(str):
        __slots__ = ()

        def __iter__(self):
            raise AssertionError

    assert str(Foreign(Text("\n" * (8 << 20)))).endswith("(8388608 characters)")


def test_what_is_not_written_is_not_made():
    class Unprintable:
        def __str__(self):
            raise AssertionError

    logging.getLogger("quiet").debug("%s", Foreign(Unprintable()))


def test_a_formatted_record_is_one_line_and_a_traceback_is_indented():
    try:
        raise ValueError("first\n2026-11-22 INFO rmq: forged " + "x" * 8_000)
    except ValueError:
        made = logging.makeLogRecord({"msg": "a\nb", "exc_info": sys.exc_info()})
    lines = LineFormatter("%(levelname)s %(message)s").format(made).split("\n")
    assert lines[0] == r"Level None a\nb"
    assert all(line.startswith("  ") and len(line) < 350 for line in lines[1:])
