"""Every way in which two brokers can lose power, change roles, part and meet again.

Two brokers of one group and four messages: each state that some order of steps can
reach is visited.  What decides is production code: `Acks` believes reports, `Overlap`
proves logs, `Divergence` finds where they part and whether one is cut,
`Watermark.minimum_of` answers senders.  The operator makes the slave the master at any
moment, and lets slaves discard what their master does not have.

With SYNC_FLUSH everything acknowledged is on both disks, whatever happens.  With
ASYNC_FLUSH one broker may lose its memory once, and the operator lets nobody discard:
everything acknowledged is in each master that is open.  Each rule has a mutation
without it that must fail.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import pytest

from rmq._fastpath.log.watermark import Watermark
from rmq.cluster.divergence import Divergence, count_equal
from rmq.cluster.log_prefix import Overlap
from rmq.cluster.log_source import LogBounds
from rmq.cluster.slave_acks import Acks
from rmq.cluster.wire import WHOLE_LOG
from rmq.core.errors import Diverged, RemoteProtocolError

MESSAGES = 4
SIZE = 8
"""Bytes of a record: where it is, and which message it is."""

Log = tuple[int, ...]


class Link(NamedTuple):
    """The connection of the slave; its reports as the master knows them."""

    first: int
    last: int = -1
    """-1: it has not reported again."""

    is_proven: bool = False


class State(NamedTuple):
    """What there is; logs are messages, the ends of disks are their number."""

    logs: tuple[Log, Log] = ((), ())
    disks: tuple[int, int] = (0, 0)
    master: int = 0
    is_open: bool = True
    """Whether the master takes messages; it asks its slave before."""

    link: Link | None = None
    replicated: int = 0
    acknowledged: frozenset[int] = frozenset()
    discarded: frozenset[int] = frozenset()
    made: int = 0
    cuts_left: int = 1
    """Power cuts that are still to come, with ASYNC_FLUSH."""


def bytes_of(log: Log) -> bytes:
    return b"".join(
        b"\0" + at.to_bytes(3, "big") + message.to_bytes(4, "big")
        for at, message in enumerate(log)
    )


class Rules:
    """The rules as they are; a mutation replaces one."""

    is_sync = True
    """SYNC_FLUSH on both sides."""

    def report_of(self, log, disk):
        return min(len(log), disk) if self.is_sync else len(log)

    @staticmethod
    @lru_cache(None)
    def first_report(log):
        return Overlap(tail_of(log)).report

    def believe(self, link, offset, sent, replicated):
        """Return what the master believes is replicated after a report, in bytes."""
        acks, watermark = Acks(1), Watermark(replicated)
        acks.report("slave", link.first, sent=max(sent, WHOLE_LOG))
        for each in (link.last, offset):
            if each >= 0:
                acks.report("slave", each, sent=max(sent, WHOLE_LOG))
        watermark.advance(acks.replicated_offset())
        return watermark.value

    @staticmethod
    @lru_cache(None)
    def proves(ours, theirs):
        """Whether a slave may follow: its last record is sent again, and compared."""
        overlap = Overlap(tail_of(ours))
        if overlap.is_proven:
            return True
        try:
            overlap.skip_equal(
                overlap.report, memoryview(bytes_of(theirs)[overlap.report :])
            )
        except Diverged:
            return False
        return overlap.is_proven

    def end_of_cut(self, ours, theirs):
        return self._end_of_cut(ours, theirs, self.is_sync)

    @staticmethod
    @lru_cache(None)
    def _end_of_cut(ours, theirs, may_discard):
        """Return how many messages a slave keeps; all if it may not cut."""
        search = count_equal(len(ours))
        try:
            number = next(search)
            while True:
                number = search.send(ours[: number + 1] == theirs[: number + 1])
        except StopIteration as found:
            kept = found.value
        end, bounds = len(ours) * SIZE, LogBounds(0, len(theirs) * SIZE)
        fork = Divergence(kept * SIZE if kept else -1, end, bounds, end)
        is_refused = fork.cut_refusal(is_promised=True, may_discard=may_discard)
        return len(ours) if is_refused else kept

    def taken_back(self, ours, theirs):
        """Return the log with which a master opens."""
        return theirs if len(theirs) > len(ours) and self.proves(ours, theirs) else ours

    def acknowledged(self, disk, replicated):
        durable, reported = Watermark(), Watermark()
        both = Watermark.minimum_of(durable, reported)
        durable.advance(disk * SIZE)
        reported.advance(replicated)
        return (both.value if self.is_sync else replicated) // SIZE


def tail_of(log):
    return (len(log) * SIZE - SIZE, bytes_of(log)[-SIZE:]) if log else None


def put(pair, index, value):
    return (value, pair[1]) if index == 0 else (pair[0], value)


def steps(state: State, rules: Rules) -> Iterator[State]:
    """Yield every state that one step leads to."""
    yield from of_the_master(state, rules)
    yield from of_fate(state, rules)
    yield from of_the_link(state, rules)


def of_the_master(state, rules):
    at = state.master
    log, other = state.logs[at], state.logs[1 - at]
    if state.is_open and state.made < MESSAGES:
        new = (*log, state.made + 1)
        yield state._replace(logs=put(state.logs, at, new), made=state.made + 1)
    if state.is_open:
        done = log[: rules.acknowledged(state.disks[at], state.replicated)]
        yield state._replace(acknowledged=state.acknowledged | set(done))
    else:
        back = put(state.logs, at, rules.taken_back(log, other))
        yield state._replace(logs=back, is_open=True)
        if rules.is_sync:  # the slave may be away
            yield state._replace(is_open=True)


def of_fate(state, rules):
    closed = state._replace(link=None, is_open=False, replicated=0)
    for at in (0, 1):
        flushed = put(state.disks, at, len(state.logs[at]))
        yield state._replace(disks=flushed)
        if rules.is_sync or state.cuts_left:
            kept = state.logs[at][: state.disks[at]]
            after = closed if at == state.master else state._replace(link=None)
            left = state.cuts_left - (not rules.is_sync)
            yield after._replace(logs=put(state.logs, at, kept), cuts_left=left)
    yield state._replace(link=None)
    yield closed
    yield closed._replace(master=1 - state.master)


def of_the_link(state, rules):
    ours, theirs = state.logs[1 - state.master], state.logs[state.master]
    link, sent = state.link, len(theirs) * SIZE
    if link is None:
        first = rules.first_report(ours)
        if first <= max(sent, WHOLE_LOG):
            yield state._replace(
                link=Link(first),
                replicated=rules.believe(Link(first), -1, sent, state.replicated),
            )
    elif not link.is_proven:
        if rules.proves(ours, theirs):
            yield state._replace(link=link._replace(is_proven=True))
    else:
        if len(ours) < len(theirs):
            new = (*ours, theirs[len(ours)])
            yield state._replace(logs=put(state.logs, 1 - state.master, new))
        length = rules.report_of(ours, state.disks[1 - state.master]) * SIZE
        for offset in (length, sent + 1):  # the last is a lie
            try:
                believed = rules.believe(link, offset, sent, state.replicated)
            except RemoteProtocolError:
                continue
            yield state._replace(link=link._replace(last=offset), replicated=believed)
    if (link is None or not link.is_proven) and not rules.proves(ours, theirs):
        yield cut(state, rules, ours, theirs)


def cut(state, rules, ours, theirs):
    """Let the slave give up what its master does not have."""
    end, at = rules.end_of_cut(ours, theirs), 1 - state.master
    return state._replace(
        link=None,
        logs=put(state.logs, at, ours[:end]),
        disks=put(state.disks, at, min(end, state.disks[at])),
        discarded=state.discarded | set(ours[end:]),
    )


def broken_rule(state: State, rules: Rules) -> str:
    """Return which promise a state breaks, empty if none."""
    ours, theirs = state.logs[1 - state.master], state.logs[state.master]
    if rules.is_sync:
        for log, disk in zip(state.logs, state.disks, strict=True):
            if not state.acknowledged <= set(log[:disk]):
                return "an acknowledged message is not on both disks"
    elif state.is_open and not state.acknowledged <= set(theirs):
        return "an acknowledged message is not in the log of an open master"
    if state.link and state.link.is_proven and theirs[: len(ours)] != ours:
        return "a slave follows whose log is not the beginning of its master's"
    if state.discarded & state.acknowledged:
        return "an acknowledged message was discarded"
    return ""


def explore(rules: Rules) -> tuple[int, str]:
    """Return how many states there are, and a broken promise if there is one."""
    seen, waiting = {State()}, [State()]
    while waiting:
        for state in steps(waiting.pop(), rules):
            if state in seen:
                continue
            if broken := broken_rule(state, rules):
                return len(seen), broken
            seen.add(state)
            waiting.append(state)
    return len(seen), ""


class WithoutFlush(Rules):
    is_sync = False


@pytest.mark.slow
@pytest.mark.parametrize("rules", [Rules, WithoutFlush])
def test_no_order_of_steps_loses_an_acknowledged_message(rules):
    count, broken = explore(rules())
    print(f"{rules.__name__}: {count} states")  # noqa: T201
    assert not broken
    assert count > 5_000


class ReportsWhatIsWritten(Rules):
    def report_of(self, log, disk):
        return len(log)


class BelievesEverything(Rules):
    def believe(self, link, offset, sent, replicated):
        return max(replicated, offset)


class BelievesTheFirstReport(Rules):
    """A slave with another log asks for its last record, and acknowledges by that."""

    def believe(self, link, offset, sent, replicated):
        return max(
            replicated, link.first, super().believe(link, offset, sent, replicated)
        )


class ProvesNothing(Rules):
    @staticmethod
    def proves(ours, theirs):
        return len(ours) <= len(theirs)


class AnswersForTheSlaveAlone(Rules):
    def acknowledged(self, disk, replicated):
        return replicated // SIZE


class OpensWithoutAsking(WithoutFlush):
    def taken_back(self, ours, theirs):
        return ours


class TakesBackFromAnybody(WithoutFlush):
    """A master that lost its memory takes the longer log, whatever it is."""

    def taken_back(self, ours, theirs):
        return theirs


class CutsTooMuch(Rules):
    def end_of_cut(self, ours, theirs):
        return 0


class DiscardsWithoutPermission(WithoutFlush):
    """The master lost its memory, and its slave gives up the same messages."""

    def end_of_cut(self, ours, theirs):
        return self._end_of_cut(ours, theirs, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutation",
    [
        ReportsWhatIsWritten,
        BelievesEverything,
        BelievesTheFirstReport,
        ProvesNothing,
        AnswersForTheSlaveAlone,
        OpensWithoutAsking,
        TakesBackFromAnybody,
        CutsTooMuch,
        DiscardsWithoutPermission,
    ],
)
def test_without_one_of_the_rules_a_promise_is_broken(mutation):
    _, broken = explore(mutation())
    assert broken
