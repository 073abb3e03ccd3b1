"""Tables for terminals, pipes and scripts that read mqadmin's columns."""

import pytest

from rmq.cli.admin.base import print_output
from rmq.cli.terminal.table import Table, cut_middle, version_name

ROWS = Table(
    ("topic", "queueId", "diff", "lastTime", "version", "type"),
    [
        ("Orders", 0, 12, 1_795_323_423_004, 513, "CONSUME_PASSIVELY"),
        ("a\x1b[2Jb\tc", 10, 3_456.5, 0, 0, None),
    ],
    "Diff Total: 3468",
)


def test_a_pipe_gets_tabs_the_keys_and_iso_times():
    assert ROWS.for_pipe() == [
        "topic\tqueueId\tdiff\tlastTime\tversion\ttype",
        "Orders\t0\t12\t2026-11-22T04:57:03.004Z\tV5_5_0\tpush",
        r"a\x1b[2Jb\tc" + "\t10\t3456.50\t\t\t",
    ]
    assert ROWS.for_pipe(header=False) == ROWS.for_pipe()[1:]


def test_a_terminal_gets_aligned_columns_and_the_note():
    titles, first, second, note = ROWS.for_terminal(200)
    assert titles.split() == ["TOPIC", "QUEUE", "ID", "DIFF", "LAST", "TIME", "VERSION",
                              "TYPE"]  # fmt: skip
    assert first.startswith("Orders               0       12  20")
    assert second.startswith(r"a\x1b[2Jb\tc        10  3456.50")
    assert note == "Diff Total: 3468"


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_line_is_wider_than_the_terminal(width):
    assert all(len(line) <= width for line in ROWS.for_terminal(width))


def test_mqadmin_s_columns_are_raw():
    titles, first, *_ = ROWS.as_mqadmin()
    assert titles.startswith("#Topic  ")
    assert "1795323423004" in first
    assert "CONSUME_PASSIVELY" in first


def test_columns_that_mqadmin_does_not_have_are_left_out_for_its_scripts():
    table = Table(("group", "waitsMs"), [("G", 65_000)], of_mqadmin=1)
    assert table.as_mqadmin() == ["#Group", "G"]
    assert table.for_pipe() == ["group\twaitsMs", "G\t65000"]
    assert table.for_terminal(80) == ["GROUP  WAITS", "G      1 min"]


def test_a_long_text_is_cut_in_its_middle():
    assert cut_middle("abcdefghij", 5) == "ab…ij"
    assert cut_middle("abc", 3) == "abc"


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [(513, "V5_5_0"), (399, "V4_9_3"), (512, "V5_5_0_SNAPSHOT"), (0, ""), (7, "7")],
)
def test_versions_have_java_s_names(ordinal, name):
    assert version_name(ordinal) == name


MESSAGE = {"topic": "Orders", "storeTimestamp": 1_795_323_423_004, "version": 513}


def test_one_message_has_times_and_versions_as_a_table_has(capsys):
    print_output(MESSAGE, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "topic\tOrders",
        "storeTimestamp\t2026-11-22T04:57:03.004Z",
        "version\tV5_5_0",
    ]
    print_output(MESSAGE, as_json=False, as_mqadmin=True)
    assert "storeTimestamp  1795323423004" in capsys.readouterr().out
