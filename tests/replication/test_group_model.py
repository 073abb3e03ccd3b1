"""Every way in which two brokers can lose power, break apart and meet again.

A SYNC_MASTER and its slave, both with SYNC_FLUSH, and three messages: each state that
some order of steps can reach is visited.  What decides is production code: `Acks`
believes reports, `Overlap` proves logs, `Watermark.lesser_of` answers senders.  In each
state a message that was acknowledged is on both disks, and a slave that follows has the
beginning of its master's log.  Each rule has a mutation without it that must fail.
"""

from typing import NamedTuple

import pytest

from rmq._fastpath import Watermark
from rmq.errors import Diverged, RemoteProtocolError
from rmq.replication.acks import Acks
from rmq.replication.prefix import Overlap

MESSAGES = 3
SIZE = 8
"""Bytes of a record: where it is, and which message it is."""


class State(NamedTuple):
    """What there is; logs are messages, the ends of disks are their number."""

    master: tuple[int, ...] = ()
    master_disk: int = 0
    slave: tuple[int, ...] = ()
    slave_disk: int = 0
    is_following: bool = False
    reported: int = -1
    """By the slave over the present connection; -1: nothing yet."""

    replicated: int = 0
    acknowledged: frozenset[int] = frozenset()
    made: int = 0


class Rules:
    """The rules as they are; a mutation replaces one."""

    def report_of(self, state):
        return min(len(state.slave), state.slave_disk)

    def believe(self, state, offset):
        """Return what the master believes is replicated after a report."""
        acks = Acks(1)
        if state.reported >= 0:
            acks.report("slave", state.reported * SIZE, sent=len(state.master) * SIZE)
        acks.report("slave", offset * SIZE, sent=len(state.slave) * SIZE)
        watermark = Watermark(state.replicated * SIZE)
        watermark.advance(acks.replicated())
        return watermark.value // SIZE

    def proves(self, state):
        """Whether the slave may follow: its last record is sent again, and compared."""
        log = bytes_of(state.slave)
        overlap = Overlap((len(log) - SIZE, log[-SIZE:]) if log else None)
        sent = bytes_of(state.master)[overlap.report :]
        if not overlap.is_proven and not sent:
            return False
        try:
            overlap.take(overlap.report, memoryview(sent))
        except Diverged:
            return False
        return overlap.is_proven

    def acknowledged(self, state):
        durable, replicated = Watermark(), Watermark()
        both = Watermark.lesser_of(durable, replicated)
        durable.advance(state.master_disk)
        replicated.advance(state.replicated)
        return both.value


def bytes_of(log):
    return b"".join(
        b"\0" + at.to_bytes(3, "big") + message.to_bytes(4, "big")
        for at, message in enumerate(log)
    )


def steps(state, rules):
    """Yield every state that one step leads to."""
    if state.made < MESSAGES:
        new = (*state.master, state.made + 1)
        yield state._replace(master=new, made=state.made + 1)
    yield state._replace(master_disk=len(state.master))
    yield state._replace(slave_disk=len(state.slave))
    done = state.master[: rules.acknowledged(state)]
    yield state._replace(acknowledged=state.acknowledged | set(done))
    # power cuts: what the disk does not have is gone
    apart = state._replace(is_following=False, reported=-1)
    kept = state.master[: state.master_disk]
    yield apart._replace(master=kept, replicated=0)
    yield apart._replace(slave=state.slave[: state.slave_disk])
    yield apart
    if not state.is_following:
        if rules.proves(state):
            yield state._replace(is_following=True)
        return
    if len(state.slave) < len(state.master):
        sent = state.master[len(state.slave)]
        yield state._replace(slave=(*state.slave, sent))
    for offset in (rules.report_of(state), len(state.slave) + 1):  # the last is a lie
        try:
            believed = rules.believe(state, offset)
        except RemoteProtocolError:
            continue
        yield state._replace(reported=offset, replicated=believed)


def broken_rule(state):
    """Return which promise a state breaks, empty if none."""
    if not state.acknowledged <= set(state.master[: state.master_disk]):
        return "an acknowledged message is not on the master's disk"
    if not state.acknowledged <= set(state.slave[: state.slave_disk]):
        return "an acknowledged message is not on the slave's disk"
    if state.is_following and state.master[: len(state.slave)] != state.slave:
        return "a slave follows whose log is not the beginning of its master's"
    return ""


def explore(rules):
    """Return how many states there are, and a broken promise if there is one."""
    seen, waiting = {State()}, [State()]
    while waiting:
        for state in steps(waiting.pop(), rules):
            if state in seen:
                continue
            if broken := broken_rule(state):
                return len(seen), broken
            seen.add(state)
            waiting.append(state)
    return len(seen), ""


@pytest.mark.slow
def test_no_order_of_steps_loses_an_acknowledged_message():
    count, broken = explore(Rules())
    assert not broken
    assert count > 1_000


class ReportsWhatIsWritten(Rules):
    def report_of(self, state):
        return len(state.slave)


class BelievesEverything(Rules):
    def believe(self, state, offset):
        return max(state.replicated, offset)


class ProvesNothing(Rules):
    def proves(self, state):
        return len(state.slave) <= len(state.master)


class AnswersForTheSlaveAlone(Rules):
    def acknowledged(self, state):
        return state.replicated


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutation",
    [
        ReportsWhatIsWritten,
        BelievesEverything,
        ProvesNothing,
        AnswersForTheSlaveAlone,
    ],
)
def test_without_one_of_the_rules_a_promise_is_broken(mutation):
    _, broken = explore(mutation())
    assert broken
