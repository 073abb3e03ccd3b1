"""The picture of `rmq top`, line by line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.cli.frame import Choice, Rates, frame, merged, rates, short
from rmq.cli.text import harmless

PROBLEM = {"place": "search", "say": "Nobody consumes; 8.7 million messages wait."}


def group(name, lag=0, **changes):
    row = {"name": name, "lag": lag, "waits_ms": 90_000, "out": 12.0, "clients": 2,
           "level": "ok", "say": ""}  # fmt: skip
    return row | changes


def topic(name, **changes):
    return {"name": name, "in": 15_188.0, "out": 3.0, "lag": 0, "kept": 3_700_000,
            "groups": 1, "queues": 32} | changes  # fmt: skip


def state(**changes):
    return {
        "now": 1_800_000_000_000, "node": "broker-a", "cluster": "shop",
        "version": "0.2.0", "up_ms": 90_000_000, "problems": [PROBLEM, PROBLEM],
        "put": 100, "got": 50, "writable": True,
        "disk": {"used": 61, "total": 100, "growth_per_hour": 4.5e9},
        "groups": [group("mail"), group("search", 8_730_912, say=PROBLEM["say"])],
        "topics": [topic("clicks"), topic("carts", **{"in": 9.0})],
        "groups_total": 60, "topics_total": 10_000,
    } | changes  # fmt: skip


def shown(choice=Choice(), size=(80, 24), states=None, **more):  # noqa: B008 - a constant
    return frame(states or [state()], Rates(80_474, 74_612), choice, size=size, **more)


def test_a_picture():
    lines = shown(size=(80, 18))
    assert lines[0].startswith("rmq top  shop  broker-a  0.2.0  up 1 d 1 h")
    assert lines[1] == "in 80.5 k/s  out 74.6 k/s  disk 61 % +4.5 GB/h"
    assert lines[2].startswith("! search: Nobody consumes; 8.7 million messages")
    assert lines[2].endswith("rmq doctor shows 1 more")
    assert lines[4:10] == [
        "GROUP               BEHIND       WAITS     OUT/S    CL  WHY",
        "search               8.7 M       1 min        12     2  "
        "Nobody consumes; 8.7 mi…",
        "mail                     0                    12     2",
        "",
        "TOPIC                 IN/S     OUT/S    BEHIND      KEPT  QUEUES",
        "clicks              15.2 k         3         0     3.7 M      32",
    ]
    assert lines[-1].startswith("60 groups, 10,000 topics")
    assert lines[-1].endswith("q quit")
    assert len(lines) == 18


def test_what_the_user_chose():
    by_name = Choice(sort="name")
    assert [line.split()[0] for line in shown(by_name)[5:7]] == ["mail", "search"]
    lines = shown(Choice(filter="CLI"))
    assert not any(line.startswith(("mail", "carts")) for line in lines)
    assert any(line.startswith("clicks") for line in lines)
    assert shown(Choice(topics_first=True))[4].startswith("TOPIC")


def test_a_broker_that_takes_no_messages_and_a_note():
    lines = shown(states=[state(writable=False, problems=[])], note="paused")
    assert "TAKES NO MESSAGES" in lines[1]
    assert lines[2] == "nothing is wrong"
    assert lines[-1].startswith("paused")


def test_brokers_are_one_table():
    both = [state(), state(node="broker-b", groups=[group("mail", 5, clients=3)])]
    rows = {row["name"]: row for row in merged(both, "groups")}
    assert (rows["mail"]["lag"], rows["mail"]["clients"]) == (5, 3)
    assert rows["mail"]["out"] == 24.0


def test_rates_are_between_two_answers():
    later = state(now=1_800_000_002_000, put=300, got=150)
    assert rates([state()], [later]) == Rates(100.0, 50.0)
    assert rates([], [later]) == Rates()
    restarted = state(now=1_800_000_002_000, put=0, got=0)
    assert rates([state()], [restarted]) == Rates(0.0, 0.0)


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
    assert short(number) == text


NAMES = st.text(min_size=1, max_size=40)


@given(st.lists(NAMES, max_size=30), st.integers(1, 200), st.integers(1, 60), NAMES)
def test_every_picture_fits(names, width, height, say):
    rows = [group(name, 7, say=say) for name in names]
    states = [state(groups=rows, topics=[topic(name) for name in names])]
    lines = shown(size=(width, height), states=states)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert [harmless(line) for line in lines] == lines
