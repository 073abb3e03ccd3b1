"""A test for each check of the broker, and for the order of the list."""

import msgspec
import pytest

from rmq.observe.failures import ServiceFailure
from rmq.observe.findings import (
    MAX_PROBLEMS,
    BrokerSnapshot,
    Disk,
    Problem,
    find_problems,
    group_problems,
    level_counts,
)
from rmq.observe.reasons import GroupFacts, QueueFacts

NOW = 1_800_000_000_000
WELL = BrokerSnapshot(broker="b", now_ms=NOW, name_servers=1)
DISK = Disk(
    total=1_000 << 30, used=500 << 30, early_ratio=0.75, refuse_ratio=0.9,
    growth_per_hour=float(1 << 30), kept_ms=3_600_000, reserved_ms=72 * 3_600_000,
)  # fmt: skip


def found(**changes):
    return find_problems(msgspec.structs.replace(WELL, **changes))


def only(**changes):
    (problem,) = found(**changes)
    assert problem.action
    return problem


def disk(**changes):
    return msgspec.structs.replace(DISK, **changes)


def test_a_broker_that_is_well():
    assert found() == found(disk=DISK, connections=(10, 100)) == []


def test_messages_are_refused():
    problem = only(refusal="the disk of /s is 91 % full")
    assert problem.level == "bad"
    assert (
        problem.message == "The broker refuses messages: the disk of /s is 91 % full."
    )


def test_a_table_that_was_torn():
    problem = only(table_losses=["topics.json was damaged. Later changes are lost"])
    assert problem.level == "bad"
    assert problem.message == "topics.json was damaged. Later changes are lost."


def test_a_log_that_lost_messages():
    problem = only(log_losses=["/s: the log is short: it is truncated there"])
    assert (problem.level, problem.kind) == ("bad", "damaged")
    assert problem.message == "/s: the log is short: it is truncated there."
    commands = "store repair --restore", "store heal", "store accept-loss"
    assert all(each in problem.action for each in commands)


def test_blocks_with_other_bytes():
    problem = only(log_holes=["offsets 0 to 65536 have other bytes", "another"])
    assert (problem.level, problem.kind) == ("bad", "hole")
    assert (
        "offsets 0 to 65536 have other bytes; and 1 further block." in problem.message
    )


def test_a_scrub_that_is_late():
    assert found(late_scrub=(0, 7)) == []
    problem = only(late_scrub=(20, 7))
    assert (problem.level, problem.kind) == ("note", "scrub")
    assert "was compared with its digests 20 days ago" in problem.message
    assert "rmq.scrubDays is 7" in problem.message


def test_a_log_that_has_healed():
    problem = only(log_healed=["/s: Healed with 7 bytes of h:1"])
    assert (problem.level, problem.kind) == ("warn", "healed")


def test_a_disk_that_does_not_tell_its_size():
    assert found(disk=disk(total=0, used=0)) == []


def test_a_disk_that_is_nearly_full():
    problem = only(disk=disk(used=800 << 30))
    assert problem.level == "warn"
    assert problem.message.startswith(
        "80 % of the disk is used: the broker deletes old files"
    )
    assert only(disk=disk(used=950 << 30)).level == "bad"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"used": 700 << 30}, "The disk reaches 75% in 2 d 2 h"),
        ({"used": 740 << 30}, "The disk reaches 75% in 10 h 0 min"),
    ],
)
def test_the_disk_will_be_full(changes, message):
    problem = only(disk=disk(**changes))
    assert problem.message.startswith(message)
    assert problem.level == ("warn" if "10 h" in message else "note")


def test_the_disk_will_be_full_soon():
    """The growth of some seconds is believed if the end is near."""
    fast = {"growth_per_hour": None, "used": 700 << 30}
    problem = only(disk=disk(**fast, lately_per_hour=float(100 << 30)))
    assert problem.level == "warn"
    assert problem.message.startswith("The disk reaches 75% in 30 min")
    assert found(disk=disk(**fast, lately_per_hour=float(50 << 30))) == []
    both = disk(used=740 << 30, lately_per_hour=float(1 << 20))
    assert only(disk=both).message.startswith("The disk reaches 75% in 10 h 0 min")


@pytest.mark.parametrize(
    "changes",
    [
        {"growth_per_hour": None}, {"growth_per_hour": 10.0},
        {"kept_ms": 80 * 3_600_000}, {"kept_ms": 60 * 3_600_000},
    ],
)  # fmt: skip
def test_the_disk_will_not_be_full(changes):
    assert found(disk=disk(used=700 << 30, **changes)) == []


def test_the_clock_of_a_sender():
    problem = only(skews=(("10.0.0.1", -1_840_000), ("10.0.0.2", 3)))
    assert problem.message == "The clock of sender 10.0.0.1 is 30 min late."
    assert "5.0 s ahead" in only(skews=(("10.0.0.1", 5_000),)).message
    assert found(skews=(("10.0.0.1", 1_900),)) == []


def test_a_forgotten_transaction():
    problem = only(open_transactions=1, oldest_transaction_ms=240_000)
    assert problem.message == (
        "1 transaction is open although the sender was asked; the oldest for 4 min."
    )
    assert problem.level == "warn"
    problem = only(
        open_transactions=2, oldest_transaction_ms=240_000, silent_senders=["pay", "p"]
    )
    assert problem.message == (
        "2 transactions are open and no sender of pay, p is connected; "
        "the oldest for 4 min."
    )
    assert problem.action.startswith("Start a sender of pay: ")
    assert only(open_transactions=9, oldest_transaction_ms=9_000).level == "note"
    assert found(open_transactions=0, oldest_transaction_ms=None) == []


def test_dead_letters_grow():
    problem = only(dead_letters=(("G", 12), ("H", 0)))
    assert (problem.group, problem.message) == (
        "G", "12 messages became dead letters in the last hour.",
    )  # fmt: skip


def test_a_name_server_does_not_know_the_broker():
    problem = only(lost_name_servers=(("n:1", "refused"),))
    assert problem.level == "bad"
    assert problem.message == "n:1 does not know this broker: refused."
    assert only(lost_name_servers=(("n:1", ""),), name_servers=2).level == "warn"


def test_replicas():
    assert "lacks 100 MiB" in only(replicas=(("r:1", 100 << 20, True),)).message
    assert only(replicas=(("r:1", 5, False),)).kind == "replica"
    assert found(replicas=(("r:1", 5, True),)) == []
    assert only(not_following="the master refuses").level == "bad"


def test_connections():
    assert only(connections=(95, 100)).message == "95 of 100 connections are open."


def test_the_worst_comes_first_and_the_list_ends():
    of_groups = [
        Problem(level="note", kind="k", subject=str(n), message="s", action="d")
        for n in range(MAX_PROBLEMS + 5)
    ]
    all_ = find_problems(msgspec.structs.replace(WELL, refusal="full"), of_groups)
    assert len(all_) == MAX_PROBLEMS + 1
    assert all_[0].kind == "refuses"
    assert all_[-1].message == "6 more problems are not listed."
    assert level_counts(all_) == {"bad": 1, "warn": 0, "note": MAX_PROBLEMS}


def test_a_group():
    facts = GroupFacts(name="G", now_ms=NOW)
    assert group_problems(facts) == []
    waits = QueueFacts(topic="T", queue_id=0, lag=5, waits_ms=90_000, still_ms=90_000)
    facts = msgspec.structs.replace(facts, queues=(waits,))
    (problem,) = group_problems(facts)
    assert (problem.subject, problem.group, problem.kind) == ("G", "G", "nobody")


def test_a_service_passed_records_and_began_again():
    failure = ServiceFailure("timer", 2, "offset 5: error('x')", "0A", 3, "error('y')")
    passed, again = found(failures=[failure])
    assert passed.level == again.level == "bad"
    assert "timer could not handle 2 messages" in passed.message
    assert "offset 5: error('x')" in passed.message
    assert passed.command == "rmq admin queryMsgById -i 0A"
    assert "failed and started again (3 since the start): error('y')" in again.message


def test_keys_that_a_program_repeats_on_purpose():
    problem = only(repeated_keys=[("few", 9, "A"), ("PG", 10, "Or ders")])
    assert (problem.level, problem.kind, problem.subject) == (
        "note", "repeated-keys", "PG",
    )  # fmt: skip
    assert problem.message.startswith("Producers of PG sent 10 messages again")
    assert problem.command == "rmq topic set 'Or ders' -a rmq.once.window.ms=0"


def test_a_full_table_of_keys():
    assert found(once_window=(300_000, 300_000)) == []
    problem = only(once_window=(60_000, 300_000))
    assert (problem.level, problem.kind) == ("warn", "once-window")
    assert "rmq.onceTableBytes" in problem.action
