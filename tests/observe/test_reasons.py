"""A test for each row of the table behind `why is it behind?`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.observe.reasons import (
    ClientFacts,
    Departure,
    GroupFacts,
    QueueFacts,
    queues_text,
    why_behind,
)

NOW = 1_800_000_000_000
A, B, C, D = (ClientFacts(f"c{n}", f"10.0.0.{n}:1", "JAVA", 100.0) for n in range(4))


def queue(queue_id=0, lag=0, **changes):
    values = {
        "topic": "T", "queue_id": queue_id, "lag": lag, "end": 1_000,
        "arriving_per_s": 10.0, "done_per_s": 10.0, "owner": "c0",
        "waits_ms": 90_000 if lag else 0, "still_ms": 10_000,
    }  # fmt: skip
    return QueueFacts(**values | changes)


def group(*queues, **changes):
    values = {"name": "G", "now_ms": NOW, "clients": (A, B), "queues": queues}
    return GroupFacts(**values | changes)


def test_a_group_that_keeps_up():
    reason = why_behind(group(queue(0), queue(1, lag=3, waits_ms=200)))
    assert (reason.level, reason.message) == ("ok", "The group keeps up.")


def test_nobody_consumes():
    left = Departure("c9 at 10.4.3.21:40000", NOW - 7_920_000, is_clean=True)
    facts = group(
        queue(lag=8_730_912, done_per_s=0.0), clients=(), last_departure=left,
        deleted_in_ms=45 * 3_600_000,
    )  # fmt: skip
    reason = why_behind(facts)
    assert reason.level == "bad"
    assert reason.message == (
        "No client consumes; 8.7 million messages wait. "
        "The last client left 2 h 12 min ago (clean shutdown)."
    )
    assert reason.summary == "nobody for 2 h 12 min"
    assert reason.details == ("It was c9 at 10.4.3.21:40000.",)
    assert "In 1 d 21 h the oldest are deleted unread." in reason.action
    lost = Departure("c9", NOW - 5_000, is_clean=False)
    assert (
        "5.0 s ago (its connection was lost)"
        in why_behind(
            group(queue(lag=1, done_per_s=0.0), clients=(), last_departure=lost)
        ).message
    )


def test_nobody_is_a_warning_within_the_first_minute():
    fresh = {"lag": 3, "done_per_s": None, "waits_ms": 4_000, "still_ms": 4_000}
    reason = why_behind(group(queue(**fresh), clients=()))
    assert (reason.level, reason.kind) == ("warn", "nobody")
    for change in ({"waits_ms": 3_900}, {"still_ms": 3_900}, {"in_flight": 2}):
        assert why_behind(group(queue(**fresh | change), clients=())).level == "ok"


def test_who_has_just_left_may_have_finished_messages_a_moment_ago():
    facts = queue(lag=3, done_per_s=9.0, waits_ms=5_000, still_ms=5_000, in_flight=1)
    left = Departure("c9", NOW - 6_000, is_clean=True)
    assert why_behind(group(facts, clients=(), last_departure=left)).kind == "nobody"
    long_ago = Departure("c9", NOW - 600_000, is_clean=True)
    assert why_behind(group(facts, clients=(), last_departure=long_ago)).level == "ok"


def test_a_group_without_members_that_commits_is_a_pull_consumer():
    reason = why_behind(group(queue(lag=5, done_per_s=20.0), clients=()))
    assert reason.kind != "nobody"


def test_it_may_not_consume():
    pause = "consumeEnable is false, set by alice 3 min ago"
    reason = why_behind(group(queue(lag=5), pauses=(pause,)))
    assert reason.level == "bad"
    assert reason.message == f"The group may not consume: {pause}."


def test_members_want_different_messages():
    reason = why_behind(
        group(queue(), sides=((3, "T TAG paid"), (2, "T TAG paid || x")))
    )
    assert (reason.level, reason.kind) == ("warn", "members-differ")
    assert reason.details == (
        "3 clients want T TAG paid", "2 clients want T TAG paid || x",
    )  # fmt: skip


def test_queues_that_belong_to_nobody():
    still = [
        queue(n, lag=50, done_per_s=0.0, still_ms=70_000, owner=None)
        for n in (4, 5, 6, 7)
    ]
    reason = why_behind(group(queue(0), *still))
    assert reason.message == (
        "Queues 4 to 7 of T have no owner: no client fetches from them."
    )
    assert reason.details[0] == "200 messages wait there."


def test_a_blocked_handler():
    stuck = queue(lag=50, in_flight=32, done_per_s=0.0, still_ms=240_000)
    reason = why_behind(group(stuck, queue(1, owner="c1")))
    assert reason.message == (
        "c0 finished nothing for 4 min, with 32 messages in flight: a blocked handler."
    )
    assert "consumerStatus -g G -i c0" in reason.command


def test_a_handler_may_be_blocked():
    """A message may rightly take seconds: a note, until a minute has passed."""
    early = {"lag": 50, "in_flight": 32, "done_per_s": 0.0, "waits_ms": 9_000}
    reason = why_behind(group(queue(**early, still_ms=8_000), queue(1, owner="c1")))
    assert (reason.level, reason.kind) == ("note", "blocked")
    assert reason.message == (
        "c0 finished nothing for 8.0 s, with 32 messages in flight: a slow or blocked "
        "handler."
    )
    assert why_behind(group(queue(**early, still_ms=6_900))).level == "ok"
    late = early | {"waits_ms": 61_000}
    assert why_behind(group(queue(**late, still_ms=8_000))).level == "warn"
    assert why_behind(group(queue(**late, still_ms=60_000))).level == "bad"


def test_one_slow_client_and_a_hot_queue_are_warnings_within_the_first_minute():
    slow = ClientFacts("c0", done_per_s=2.0), ClientFacts("c1", done_per_s=50.0)
    for waits_ms, kind in ((6_900, "keeps-up"), (7_000, "slow-client")):
        reason = why_behind(group(queue(lag=50, waits_ms=waits_ms), clients=slow))
        assert reason.kind == kind
    assert reason.level == "warn"
    rest = [queue(n, arriving_per_s=1.0) for n in range(1, 5)]
    for waits_ms, kind in ((6_900, "keeps-up"), (7_000, "hot-queue")):
        hot = queue(0, lag=50, waits_ms=waits_ms, arriving_per_s=50.0)
        assert why_behind(group(hot, *rest)).kind == kind


def test_one_slow_client():
    slow = ClientFacts("c0", done_per_s=94.0)
    others = [ClientFacts(f"c{n}", done_per_s=1_600.0) for n in (1, 2, 3)]
    lagging = [queue(n, lag=100, done_per_s=23.5) for n in (12, 13, 14, 15)]
    facts = group(queue(0, owner="c1"), *lagging, clients=(slow, *others))
    reason = why_behind(facts)
    assert reason.message == (
        "One of 4 clients is slow. c0 finishes 94 a second, the others 1,600 a second."
    )
    assert reason.details[0] == (
        "c0 has Queues 12 to 15 of T, with 100 % of the waiting messages."
    )


def test_no_client_is_slow_among_equals():
    facts = group(queue(lag=9), queue(1, lag=9, owner="c1"), clients=(A, B))
    assert why_behind(facts).kind != "slow-client"


def test_messages_fail():
    facts = group(queue(done_per_s=1_937.5), again_per_s=310.0, again_before_per_s=2.0)
    reason = why_behind(facts)
    assert (reason.level, reason.message) == (
        "warn", "16 % of its messages fail and are retried.",
    )  # fmt: skip
    assert reason.details[0] == (
        "310 a second are retried; in the hour before it was 2.0 a second."
    )
    assert why_behind(group(queue(done_per_s=1_000.0), again_per_s=10.0)).level == "ok"


def test_a_hot_queue():
    hot = queue(5, lag=90, arriving_per_s=41.0, done_per_s=None)
    rest = [queue(n, arriving_per_s=59 / 15, owner="c1") for n in range(15) if n != 5]
    reason = why_behind(group(hot, *rest, queue(20, arriving_per_s=59 / 15)))
    assert reason.message.startswith("Queue 5 of T gets 41 % of the messages")


def test_more_clients_do_not_help():
    queues = [
        queue(n, lag=50, owner=f"c{n}", done_per_s=5.0, waits_ms=90_000)
        for n in range(4)
    ]
    reason = why_behind(group(*queues, clients=(A, B, C, D)))
    assert reason.message == (
        "4 clients, 4 queues, all busy: more clients do not help, more queues do."
    )


def test_more_clients_help():
    queues = [
        queue(n, lag=50, arriving_per_s=400.0, done_per_s=100.0, owner=f"c{n % 4}")
        for n in range(8)
    ]
    reason = why_behind(group(*queues, clients=(A, B, C, D)))
    assert reason.message == (
        "4 clients finish 800 a second, 3,200 a second arrive. "
        "The group needs 16 clients."
    )
    assert reason.catch_up == "never caught up at 800 a second"


def test_it_reads_from_the_disk():
    facts = group(queue(lag=50, done_per_s=None), queue(1), faults_per_s=300.0)
    assert "300 pages per second come from the disk" in why_behind(facts).message


def test_it_catches_up():
    facts = group(queue(lag=72_000, arriving_per_s=100.0, done_per_s=200.0))
    reason = why_behind(facts)
    assert reason.level == "note"
    assert reason.message == "The group will be caught up in 12 min at this speed."


def test_nothing_explains_it():
    reason = why_behind(group(queue(lag=50, done_per_s=None), queue(1)))
    assert reason.kind == "unexplained"
    assert reason.message == "The group lags by 50 messages, and the reason is unknown."


def test_the_first_row_is_the_sentence_and_the_others_are_evidence():
    stuck = queue(lag=50, in_flight=32, done_per_s=0.0, still_ms=240_000)
    reason = why_behind(group(stuck, pauses=("topic T may not be read",)))
    assert reason.kind == "paused"
    assert any("a blocked handler" in each for each in reason.details)


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([3], "Queue 3 of T"), ([1, 2], "Queues 1, 2 of T"),
        ([0, 1, 2, 7], "Queues 0 to 2, 7 of T"),
        ([0, 2, 4, 6, 8], "Queues 0, 2, 4 and 2 more of T"),
    ],
)  # fmt: skip
def test_queues_are_named_by_runs(ids, text):
    assert queues_text([queue(n) for n in ids]) == text


RATES = st.none() | st.floats(0, 1e6)
QUEUES = st.builds(
    QueueFacts,
    topic=st.sampled_from("TU"),
    queue_id=st.integers(0, 9),
    lag=st.integers(0, 10**9),
    in_flight=st.integers(0, 100),
    owner=st.none() | st.sampled_from(["c0", "c1", "c7"]),
    arriving_per_s=st.floats(0, 1e6),
    done_per_s=RATES,
    still_ms=st.integers(0, 10**6),
    waits_ms=st.integers(0, 10**6),
)
GROUPS = st.builds(
    GroupFacts,
    name=st.just("G"),
    now_ms=st.just(NOW),
    clients=st.lists(
        st.builds(ClientFacts, id=st.sampled_from(["c0", "c1"]), done_per_s=RATES)
    ),
    queues=st.lists(QUEUES),
    again_per_s=st.floats(0, 1e6),
    again_before_per_s=RATES,
    faults_per_s=st.floats(0, 1e6),
    deleted_in_ms=st.none() | st.integers(0, 10**9),
)


@given(GROUPS)
def test_every_group_gets_one_sentence(facts):
    reason = why_behind(facts)
    assert reason.message.endswith(".")
    assert reason.level == "ok" or reason.action
    assert (reason.level == "ok") is (reason.summary == "")
    assert len(reason.summary) <= min(60, len(reason.message)), reason
    assert not facts.is_behind or reason.level != "ok"


RANKS = {"ok": 0, "note": 1, "warn": 2, "bad": 3}
AGES = st.sampled_from([0, 2_000, 4_000, 7_000, 30_000, 58_000, 60_000, 300_000])


@st.composite
def lasting_groups(draw):
    """Return a function of the time: a group whose cause lasts."""
    clients = (A, B)[: draw(st.integers(0, 2))]
    left_ms = draw(st.none() | AGES)
    specs = [
        (
            draw(st.integers(0, 5)), draw(AGES), draw(AGES), draw(st.integers(0, 3)),
            draw(st.sampled_from([None, 0.0, 9.0] if clients else [None, 0.0])),
            draw(st.sampled_from([0.0, 9.0])),
            draw(st.sampled_from([None, "c0", "c1"])),
        )
        for _ in range(draw(st.integers(1, 5)))
    ]  # fmt: skip

    def at(later_ms):
        queues = [
            queue(
                number,
                lag=lag,
                waits_ms=waits + later_ms if lag else 0,
                still_ms=still if done else still + later_ms,
                in_flight=min(in_flight, lag),
                done_per_s=done,
                arriving_per_s=arriving,
                owner=owner if clients else None,
            )
            for number, (lag, waits, still, in_flight, done, arriving, owner) in (
                enumerate(specs)
            )
        ]
        left = None
        if left_ms is not None and not clients:
            left = Departure("c9", NOW - left_ms, is_clean=True)
        return group(
            *queues, clients=clients, last_departure=left, now_ms=NOW + later_ms
        )

    return at


@given(lasting_groups(), st.integers(0, 200), st.integers(1, 200))
def test_a_cause_that_lasts_does_not_blink(at, first_s, more_s):
    """While nothing changes but the time, no problem vanishes or becomes smaller."""
    before = why_behind(at(1_000 * first_s))
    after = why_behind(at(1_000 * (first_s + more_s)))
    assert RANKS[after.level] >= RANKS[before.level], (before, after)


def test_messages_of_a_client_that_left_are_in_nobody_s_use():
    """The problem vanished for 2 s, a minute after the client had left."""
    for ago_ms in range(5_000, 120_000, 400):
        left = Departure("c9", NOW - ago_ms, is_clean=False)
        facts = queue(
            lag=3, done_per_s=0.0, in_flight=3, still_ms=ago_ms, waits_ms=ago_ms - 1_000
        )
        reason = why_behind(group(facts, clients=(), last_departure=left))
        assert reason.kind == "nobody", ago_ms
