"""The screen of `rmq top`, line by line."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.cli.terminal.text import escape_controls, short_number
from rmq.cli.top.columns import Choice, sort_keys
from rmq.cli.top.overview import (
    ClientRow,
    Overview,
    Rates,
    broker_rows,
    compute_rates,
    merge_rows,
)
from rmq.cli.top.render import render_screen

PROBLEM = {
    "subject": "search",
    "message": "No client consumes; 8.7 million messages wait.",
}


def group(name, lag=0, **changes):
    row = {"name": name, "lag": lag, "waits_ms": 90_000, "out": 12.0, "clients": 2,
           "again": 0.0, "dead": 0, "level": "ok", "message": ""}  # fmt: skip
    return row | changes


def topic(name, **changes):
    return {"name": name, "in": 15_188.0, "out": 3.0, "lag": 0, "kept": 3_700_000,
            "groups": 1, "queues": 32} | changes  # fmt: skip


def state(**changes):
    return msgspec.convert({
        "now": 1_800_000_000_000, "node": "broker-a", "cluster": "shop",
        "version": "0.2.0", "up_ms": 90_000_000, "problems": [PROBLEM, PROBLEM],
        "put": 100, "got": 50, "writable": True,
        "disk": {"used": 61, "total": 100, "growth_per_hour": 4.5e9},
        "groups": [
            group("mail"), group("search", 8_730_912, message=PROBLEM["message"])
        ],
        "topics": [topic("clicks"), topic("carts", **{"in": 9.0})],
        "groups_total": 60, "topics_total": 10_000, "due": 94_959.0, "connections": 7,
    } | changes, Overview)  # fmt: skip


def shown(choice=Choice(), size=(80, 24), states=None, **more):  # noqa: B008 - a constant
    rates = Rates(80_474, 74_612)
    return render_screen(states or [state()], rates, choice, size=size, **more).lines


def test_a_screen():
    lines = shown(size=(80, 18))
    assert lines[0].startswith("rmq top  shop  broker-a  0.2.0  up 1 d")
    assert lines[0].endswith("  every 1 s   ? help")
    assert lines[1] == "in 80.5 k/s  out 74.6 k/s of 95.0 k due   disk 61 % +4.5 GB/h"
    assert lines[2].startswith("! search: No client consumes; 8.7 million messages")
    assert lines[2].endswith("rmq doctor shows 1 more")
    assert lines[4:10] == [
        "GROUP                LAG v        WAIT     OUT/S    CL  WHY",
        "search               8.7 M       1 min        12     2  "
        "No client consumes; 8.7…",
        "mail                     0                    12     2",
        "",
        "TOPIC               IN/S v     OUT/S       LAG    STORED    QUEUES",
        "clicks              15.2 k         3         0     3.7 M        32",
    ]
    assert lines[-1].startswith("1-2 of 60 groups, 1-2 of 10,000 topics")
    assert lines[-1].endswith("q quit")
    assert len(lines) == 18


def test_the_head_has_the_time_of_sends():
    both = [state(send_p99_ms=3), state(send_p99_ms=None)]
    assert "due   send p99 \u2264 3 ms   disk 61 %" in shown(states=both)[1]
    slow = [state(send_p99_ms=3), state(send_p99_ms=3_001)]
    assert "send p99 > 3.0 s " in shown(states=slow)[1]


def test_why_is_short():
    """Brokers of before have only the sentence."""
    groups = [
        group("a", 3, message=PROBLEM["message"], summary="nobody for 2 h 12 min"),
        group("b", 2, message=PROBLEM["message"]),
    ]
    lines = shown(states=[state(groups=groups)])
    assert lines[5].endswith("  nobody for 2 h 12 min")
    assert lines[6].endswith("  No client consumes; 8.7…")
    worse = state(groups=[group("a", level="bad", message="S", summary="B")])
    (row,) = merge_groups(state(groups=[group("a", summary="")]), worse)
    assert (row.level, row.message, row.short_reason) == ("bad", "S", "B")


def test_what_the_user_chose():
    by_name = Choice(sort="name")
    assert [line.split()[0] for line in shown(by_name)[5:7]] == ["mail", "search"]
    lines = shown(Choice(filter="CLI"))
    assert not any(line.startswith(("mail", "carts")) for line in lines)
    assert any(line.startswith("clicks") for line in lines)
    assert shown(Choice("topics", "incoming"))[4].startswith("TOPIC")


def test_a_broker_that_takes_no_messages_and_a_note():
    lines = shown(states=[state(writable=False, problems=[])], status="paused")
    assert "NOT WRITABLE" in lines[1]
    assert lines[2] == "no problems"
    assert lines[-1].startswith("paused")


def merge_groups(*states):
    return merge_rows(row for state in states for row in state.groups)


def test_brokers_are_one_table():
    both = [state(), state(node="broker-b", groups=[group("mail", 5, clients=3)])]
    rows = {row.name: row for row in merge_groups(*both)}
    assert (rows["mail"].lag, rows["mail"].clients) == (5, 3)
    assert rows["mail"].outgoing == 24.0
    (clicks, _) = merge_rows(row for each in both for row in each.topics)
    assert (clicks.incoming, clicks.stored, clicks.queues) == (30_376.0, 7_400_000, 32)


def test_rates_are_between_two_answers():
    later = state(now=1_800_000_002_000, put=300, got=150)
    assert compute_rates([state()], [later]) == Rates(100.0, 50.0)
    assert compute_rates([], [later]) == Rates()
    restarted = state(now=1_800_000_002_000, put=0, got=0)
    assert compute_rates([state()], [restarted]) == Rates(0.0, 0.0)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (18_400, "18.4 k"),
        (999_950, "1.0 M"),
        (8.7e9, "8.7 G"),
    ],
)
def test_short_numbers(number, text):
    assert short_number(number) == text


NAMES = st.text(min_size=1, max_size=40)


@given(st.lists(NAMES, max_size=30), st.integers(1, 200), st.integers(1, 60), NAMES)
def test_every_screen_fits(names, width, height, say):
    rows = [group(name, 7, message=say) for name in names]
    states = [state(groups=rows, topics=[topic(name) for name in names])]
    lines = shown(size=(width, height), states=states)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert [escape_controls(line) for line in lines] == lines


def test_a_wide_screen_has_what_fails_and_the_last_two_minutes():
    groups = [group("mail", 9, again=46.2, dead=284, message="It is slow.")]
    lines = shown(
        size=(120, 20), states=[state(groups=groups)], trends={"mail": "▁▂▃▄▅▆▇█" * 2}
    )
    assert lines[4:6] == [
        "GROUP                LAG v        WAIT     OUT/S    CL  "
        "LAST 2 MIN          RETRY/S     DLQ  WHY",
        "mail                     9       1 min        12     2  "
        "▁▂▃▄▅▆▇█▁▂▃▄▅▆▇█         46     284  It is slow.",
    ]
    narrow = shown(size=(119, 20), states=[state(groups=groups)])
    assert "DLQ" not in narrow[4]


def test_what_java_does_not_tell():
    groups = [group("mail", 9, again=None, dead=None, clients=None)]
    lines = shown(size=(120, 20), states=[state(groups=groups, due=None)])
    assert "due" not in lines[1]
    assert lines[5].split()[-2:] == ["-", "-"]


def test_a_chosen_row_is_marked_and_stays_in_sight():
    groups = [group(f"g{number:02}", 99 - number) for number in range(40)]
    for at, name in ((0, "g00"), (30, "g30"), (99, "g39")):
        found = render_screen(
            [state(groups=groups)], Rates(), Choice(at=at), size=(80, 24)
        )
        (line,) = [n for n, style in found.styles.items() if style == "chosen"]
        assert found.lines[line].startswith(name)
        assert found.names[min(at, 39)] == name
        assert line < 23


def test_problems_and_groups_have_the_look_of_their_level():
    rows = [group("a", 3, level="bad"), group("b", 2, level="warn"), group("c")]
    found = render_screen([state(groups=rows)], Rates(), Choice(at=2), size=(80, 24))
    assert [found.styles[n] for n in (4, 5, 6, 7)] == ["head", "bad", "warn", "chosen"]


def test_clients_and_brokers_have_a_table_of_their_own():
    client = {"kind": "consumer", "group": "mail", "client": "10.0.0.1@7",
              "address": "10.0.0.1:5", "language": "JAVA", "heard_ms": 400}  # fmt: skip
    rows = [msgspec.convert(client, ClientRow)]
    lines = shown(Choice("clients", "name"), rows=rows)
    assert lines[4].split() == ["GROUP", "v", "KIND", "LIBRARY", "SEEN", "CLIENT"]
    assert lines[5].split() == ["mail", "consumer", "JAVA", "400", "ms", "10.0.0.1@7"]
    rows = [msgspec.convert({**client, "protocol": "grpc"}, ClientRow)]
    assert "JAVA gRPC" in shown(Choice("clients", "name"), rows=rows)[5]
    later = state(now=1_800_000_002_000, put=300, got=150)
    rows = broker_rows([state()], [later, state(node="b", writable=False)])
    assert [row.incoming for row in rows] == [100.0, None]
    lines = shown(Choice("brokers", "name"), size=(120, 24), rows=rows)
    assert "NOT WRITABLE" in lines[5] + lines[6]
    assert "1-2 of 2 brokers" in lines[-1]


def test_the_group_of_a_broker():
    members = [
        {"id": 1, "in_set": True, "behind": 0},
        {"id": 2, "in_set": True, "behind": None},
        {"id": 3, "in_set": False, "behind": 1_200},
    ]
    master = {"epoch": 4, "is_master": True, "members": members}
    slave = {"epoch": 4, "is_master": False, "members": None}
    rows = broker_rows([], [state(group=master), state(group=slave), state(group=None)])
    assert [row.message.partition("up ")[0] for row in rows] == [
        "epoch 4, in sync 1 2, 2 is not connected, 3 lags 1,200 bytes; ",
        "epoch 4, slave; ",
        "",
    ]


@pytest.mark.parametrize(
    ("view", "rows"),
    [
        ("groups", ()),
        ("topics", ()),
        ("clients", [ClientRow(name=n, kind="", client="", language="", heard_ms=0)
                     for n in "ba"]),
        ("brokers", broker_rows([], [state(), state(node="b")])),
    ],
)  # fmt: skip
def test_every_order_of_a_view_works(view, rows):
    for key in sort_keys(view):
        for is_ascending in (False, True):
            assert shown(Choice(view, key, is_ascending), rows=rows)
