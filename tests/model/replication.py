"""The steps of a small group with a controller, over the rules that brokers run.

Some brokers, one controller, a few messages; steps in any order, as often as you like:
a master appends, a slave copies, flushes, loses its connection, a master hears what its
slaves have, asks for another set, the controller carries that out, the master hears of
it, somebody is elected, learns its role, crashes with or without the tail of its log.
`SyncSet`, `Epochs` and the role automaton are those of production; a log is a string of
messages, one byte each.

A step that breaks a promise raises `Violation`:

* A: what was acknowledged is in the log of every later master;
* B: what a reader saw at an offset nobody ever sees differently;
* C: an epoch has one master.

No history of a real group is missing.  Some are there that no real group has, because
fewer states are enough for these:

* What a slave has reported is no part of a state: whenever a master looks, each slave
  that is connected has reported some of what it has, or nothing yet (`outcomes`).
* Requests and answers are never lost: one that does not arrive is as good as lost.
* A request that the controller can no longer carry out is no part of a state: its
  master hears of the set that the controller has instead.
* A slave shows its readers all that it may at once.  If it hears that late, it promises
  less, and nothing else differs: as a master it begins behind all that it has.
* Who crashes starts at once; to the others it may be as if it were down.
"""

from functools import cache
from itertools import chain, product
from typing import NamedTuple

from rmq.cluster.controller_role import (
    AskRole,
    Identified,
    Register,
    Registered,
    RoleFound,
    RoleState,
    SwitchTerm,
    Term,
    step,
)
from rmq.cluster.epochs import Epochs
from rmq.cluster.sync_set import SyncSet
from rmq.cluster.wire import Epoch

MAX_LAG_MS = 1
NAMES = "abcdefgh"


class Violation(AssertionError):
    """A promise that a history breaks."""


class Rules(NamedTuple):
    """What is as in production, and how much may happen."""

    brokers: int = 2
    messages: int = 2
    crashes: int | None = None
    """In all; None: any number."""

    is_sync_flush: bool = False
    """Reports and acknowledgements are of the disk; no crash loses that."""

    loses_tail: bool = True
    """A crash may take what the disk does not have."""

    group: type[SyncSet] = SyncSet
    epoch_list: type[Epochs] = Epochs
    compares_bytes: bool = True
    steps_aside: bool = True
    reports_written: bool = False
    """With SYNC_FLUSH: a mistake."""

    forgets_requests_at_start: bool = False
    """A master that is alone in its set shows its log, whatever it has asked for."""

    learns_refusals: bool = True
    notes_requests: bool = True
    elects_for_the_dead: bool = False
    """Nobody is elected while the master runs: there are no partitions."""

    least_in_sync: int = 1
    over_reports: bool = False
    is_lossy: bool = True
    """Connections may be lost."""


class Known(NamedTuple):
    """What a master knows: its `SyncSet` without the reports."""

    members: frozenset
    number: int
    start: int
    confirmed: int
    asked: frozenset | None = None


class Broker(NamedTuple):
    """One broker."""

    log: str = ""
    durable: int = 0
    epochs: tuple[Epoch, ...] = ()
    term: int = 0
    """Of the role that it has learned; 0 after a start."""

    lacks: bool = False
    seen: int = 0
    """What its readers may see."""

    start: int = 0
    """Where its term began: it acknowledges what came after."""

    follows: int = 0
    known: Known | None = None
    """Of a master."""

    noted: tuple | None = None
    """Number and set of the last request, which is in a file."""

    told: tuple | None = None
    """Set and number of an answer on its way to a master of an older epoch."""


class State(NamedTuple):
    """All brokers, the controller, requests on their way, and what was promised."""

    brokers: tuple[Broker, ...]
    master: int = 0
    epoch: int = 0
    members: frozenset = frozenset()
    number: int = 0
    requests: frozenset = frozenset()
    """Sets that the master has asked for, instead of the one with this number."""

    acknowledged: frozenset = frozenset()
    shown: str = ""
    """What readers saw."""

    next: int = 0
    """How many messages there have been."""

    crashes: int = 0
    """As many as are counted."""

    def of(self, one: int) -> Broker:
        return self.brokers[one - 1]

    def put(self, one: int, broker: Broker) -> "State":
        brokers = self.brokers
        return self._replace(brokers=(*brokers[: one - 1], broker, *brokers[one:]))


def group_of(rules, own, known, reports=()):
    """Make the production's set."""
    group = rules.group(
        own, known.members, number=known.number, start=known.start,
        confirm_offset=known.confirmed, max_lag_ms=MAX_LAG_MS,
    )  # fmt: skip
    group.requested = known.asked
    for broker_id, offset in reports:
        group.report(broker_id, offset, end=offset, now_ms=0)
    return group


def known_of(group, known):
    return known._replace(
        members=group.members, number=group.number, asked=group.requested
    )


@cache
def outcomes(rules, own, known, end, connected, is_calm):
    """Whatever slaves have reported: what is confirmed, and what is wished then.

    `connected` has the id of each slave, and up to where it may have reported: if all
    is calm, each has reported at least what is confirmed.
    """
    offsets = [range(known.confirmed * is_calm, most + 1) for _, most in connected]
    each_may = [
        [*[()] * (not is_calm), *(((each, offset),) for offset in may)]
        for (each, _), may in zip(connected, offsets, strict=True)
    ]
    groups = [
        group_of(rules, own, known, chain(*reports)) for reports in product(*each_may)
    ]
    return {(each.confirm_offset(end), each.desired_set(end, 0)) for each in groups}


def term_of(state, one):
    """What the controller answers to a broker."""
    return Term(state.epoch, state.master, "", one, state.members, state.number)


@cache
def enters(term, may_lack):
    """Whether the role automaton of production starts this term now."""
    role, effects = step(RoleState(may_lack=may_lack), Identified(0, 1))
    if effects == (AskRole(),):
        role, effects = step(role, RoleFound(term, 0))
    if effects == (Register(),):
        role, effects = step(role, Registered(term, 0))
    return effects == (SwitchTerm(term),)


class Model:
    """The steps."""

    def __init__(self, rules):
        self.rules = rules
        self.ids = range(1, rules.brokers + 1)

    def first(self):
        """Broker 1 is the master of an empty group, the others are in its set."""
        everybody = frozenset(self.ids)
        master = Broker(epochs=(Epoch(1, 0),), term=1, known=Known(everybody, 1, 0, 0))
        slaves = (Broker(term=1, follows=1) for _ in self.ids[1:])
        return State((master, *slaves), master=1, epoch=1, members=everybody, number=1)

    def steps(self, state):
        """Yield name and next state of everything that may happen."""
        for one in self.ids:
            for name, after in self._of_broker(state, one, state.of(one)):
                yield f"{one} {name}", self._settle(after)
        yield from self._of_controller(state)

    def _of_broker(self, state, one, broker):
        if broker.known is not None:
            yield from self._of_master(state, one, broker)
        if broker.durable < len(broker.log):
            done = broker._replace(durable=len(broker.log))
            yield "flushes", state.put(one, done)
        if broker.follows:
            yield from self._of_slave(state, one, broker)
        elif broker.term == state.epoch and broker.known is None:
            yield from self._connect(state, one, broker, state.master)
        if self._may_learn(state, one, broker):
            yield f"learns epoch {state.epoch}", self._role(state, one, broker)
        if self.rules.crashes is None or state.crashes < self.rules.crashes:
            yield from self._crash(state, one, broker)

    # -- a master

    def _of_master(self, state, one, broker):
        rules, known = self.rules, broker.known
        if state.next < rules.messages and len(known.members) >= rules.least_in_sync:
            message = unused(state)
            after = state.put(one, broker._replace(log=broker.log + message))
            yield f"appends {message}", after._replace(next=state.next + 1)
        connected = self._connected(state, one, broker)
        is_calm = not (rules.is_lossy or state.crashes)
        for confirmed, wanted in outcomes(
            rules, one, known, len(broker.log), connected, is_calm
        ):
            heard = broker._replace(known=known._replace(confirmed=confirmed))
            if confirmed > known.confirmed:
                yield f"confirms {confirmed}", state.put(one, heard)
            if wanted is not None:
                yield f"asks for {set(wanted)}", self._ask(state, one, heard, wanted)
        yield from self._hear(state, one, broker)
        for each in self.ids if rules.is_lossy else ():
            other = state.of(each)
            if other.follows == one:
                yield f"loses {each}", state.put(each, other._replace(follows=0))

    def _connected(self, state, one, broker):
        """Who is connected, and what it may have reported."""
        rules, found = self.rules, []
        for each in self.ids:
            other = state.of(each)
            if other.follows == one:
                most = len(other.log)
                if rules.over_reports:
                    most = len(broker.log)
                elif rules.is_sync_flush and not rules.reports_written:
                    most = other.durable
                found.append((each, most))
        return tuple(found)

    def _ask(self, state, one, broker, wanted):
        known, present = broker.known, (state.epoch, state.number)
        group = group_of(self.rules, one, known)
        group.request_change(wanted)
        noted = broker.term, known.number, wanted
        after = state.put(
            one, broker._replace(known=known_of(group, known), noted=noted)
        )
        if noted[:2] == present:
            after = after._replace(requests=after.requests | {wanted})
        return after

    def _hear(self, state, one, broker):
        """Hear what the controller has answered, or would answer now."""
        known = broker.known
        answer = broker.told
        if broker.term == state.epoch:
            answer = state.members, state.number
        group = group_of(self.rules, one, known)
        if answer is not None and group.apply(*answer):
            heard = broker._replace(known=known_of(group, known), told=None)
            yield f"hears of {set(answer[0])}", state.put(one, heard)
        is_void = (broker.term, known.number) != (state.epoch, state.number)
        if is_void and not self.rules.learns_refusals:
            group = group_of(self.rules, one, known)
            group.cancel_request()
            refused = broker._replace(known=known_of(group, known))
            yield "is refused", state.put(one, refused)

    # -- a slave

    def _of_slave(self, state, one, broker):
        master, offset = state.of(broker.follows), len(broker.log)
        if offset < len(master.log):
            epochs = self.rules.epoch_list(broker.epochs)
            found = self.rules.epoch_list(master.epochs).epoch_at(offset)
            if found is not None and found[0] not in epochs.all_epochs()[-1:]:
                epochs.begin(found[0])
            log = broker.log + master.log[offset]
            grown = broker._replace(log=log, epochs=epochs.all_epochs())
            yield "copies", state.put(one, grown)

    def _connect(self, state, one, broker, other):
        """Follow the master of the term, if it is that already."""
        master = state.of(other)
        if other == one or master.known is None or master.term != broker.term:
            return
        epochs = self.rules.epoch_list(broker.epochs)
        end = len(broker.log)
        point = epochs.consistent_point(end, master.epochs, len(master.log))
        point = end if point is None and not end else point or 0
        if self.rules.compares_bytes:
            common = 0
            while common < min(end, len(master.log)) and (
                broker.log[common] == master.log[common]
            ):
                common += 1
            if broker.log[:point] != master.log[:point]:
                point = common
        epochs.drop_after(point)
        following = broker._replace(
            log=broker.log[:point], durable=min(broker.durable, point),
            epochs=epochs.all_epochs(), follows=other, seen=min(broker.seen, point),
            lacks=False,
        )  # fmt: skip
        yield f"follows {other} from {point}", state.put(one, following)

    # -- roles

    def _may_learn(self, state, one, broker):
        if broker.term >= state.epoch:
            return False
        return enters(term_of(state, one), broker.lacks and self.rules.steps_aside)

    def _role(self, state, one, broker):
        rules = self.rules
        fresh = broker._replace(term=state.epoch, follows=0, known=None, told=None)
        if state.master == one:
            end = len(broker.log)
            epochs = rules.epoch_list(broker.epochs)
            if epochs.last_number != state.epoch:
                epochs.begin(Epoch(state.epoch, end if epochs.all_epochs() else 0))
            check_kept(state, one, broker)
            check_alone(state)
            asked = None
            if rules.notes_requests and fresh.noted is not None:
                *present, wanted = fresh.noted
                asked = wanted if present == [state.epoch, state.number] else None
            requested = None if rules.forgets_requests_at_start else asked
            term = term_of(state, one)
            confirmed = term.start_offset(requested, end, broker.seen)
            known = Known(
                state.members,
                state.number,
                epochs.all_epochs()[-1].start,
                confirmed,
                asked,
            )
            fresh = fresh._replace(
                epochs=epochs.all_epochs(),
                seen=confirmed,
                start=end,
                durable=end,
                known=known,
            )
        return left(state, one).put(one, fresh)

    def _crash(self, state, one, broker):
        rules, end = self.rules, len(broker.log)
        for kept in range(broker.durable if rules.loses_tail else end, end + 1):
            epochs = rules.epoch_list(broker.epochs)
            epochs.drop_after(kept)
            again = broker._replace(
                log=broker.log[:kept], durable=kept, epochs=epochs.all_epochs(), term=0,
                lacks=broker.lacks or (kept < end and not rules.is_sync_flush),
                seen=min(broker.seen, kept), follows=0, known=None, told=None,
            )  # fmt: skip
            after = left(state, one).put(one, again)
            if rules.crashes is not None:
                after = after._replace(crashes=state.crashes + 1)
            yield f"crashes, starts with {kept}", after

    # -- the controller

    def _of_controller(self, state):
        for wanted in state.requests:
            yield (
                f"the set becomes {set(wanted)}",
                state._replace(
                    members=wanted, number=state.number + 1, requests=frozenset()
                ),
            )
        if self.rules.elects_for_the_dead and state.of(state.master).term:
            return
        for one in state.members:
            broker = state.of(one)
            is_other = one != state.master or not broker.term
            is_aside = self.rules.steps_aside and broker.lacks
            if is_other and (state.members == {one} or not is_aside):
                yield f"{one} is elected", self._elected(state, one)

    def _elected(self, state, one):
        """A new epoch; an answer to the master of the old one may be on its way."""
        master = state.of(state.master)
        if master.known is not None and master.term == state.epoch:
            told = state.members, state.number
            state = state.put(state.master, master._replace(told=told))
        return state._replace(
            master=one, epoch=state.epoch + 1, members=frozenset({one}),
            number=state.number + 1, requests=frozenset(),
        )  # fmt: skip

    # -- promises

    def _settle(self, state):
        """Acknowledge and show what may be."""
        for one, broker in enumerate(state.brokers, 1):
            if broker.known is not None and broker.known.confirmed > broker.seen:
                state = self._acknowledge(state, one, broker)
        for one, broker in enumerate(state.brokers, 1):
            if broker.follows:
                safe = broker.durable if self.rules.is_sync_flush else len(broker.log)
                seen = min(state.of(broker.follows).seen, safe)
                if seen > broker.seen:
                    state = state.put(one, broker._replace(seen=seen))
        for broker in state.brokers:
            check_shown(state.shown, broker)
            if broker.seen > len(state.shown):
                state = state._replace(shown=broker.log[: broker.seen])
        return state

    def _acknowledge(self, state, one, broker):
        confirmed = broker.known.confirmed
        if self.rules.is_sync_flush:
            confirmed = min(confirmed, broker.durable)
        too_few = len(broker.known.members) < self.rules.least_in_sync
        if too_few or confirmed <= broker.seen:
            return state
        new = frozenset(broker.log[max(broker.start, broker.seen) : confirmed])
        state = state.put(one, broker._replace(seen=confirmed))
        if new:
            state = state._replace(acknowledged=state.acknowledged | new)
            master = state.of(state.master)
            if master.known is not None and master.term == state.epoch:
                check_kept(state, state.master, master)
        return state


def unused(state):
    """Return a name that no message has."""
    logs = (broker.log for broker in state.brokers)
    used = state.acknowledged.union(state.shown, *logs)
    return next(name for name in NAMES if name not in used)


def left(state, one):
    """End the connections to a broker."""
    for each, broker in enumerate(state.brokers, 1):
        if broker.follows == one:
            state = state.put(each, broker._replace(follows=0))
    return state


def check_alone(state):
    for each in state.brokers:
        if each.known is not None and each.term == state.epoch:
            raise Violation(f"C: epoch {state.epoch} has two masters")


def check_kept(state, one, broker):
    missing = state.acknowledged - set(broker.log)
    if missing:
        names = "".join(sorted(missing))
        raise Violation(f"A: {one} becomes the master without {names}")


def check_shown(shown, broker):
    for offset in range(min(broker.seen, len(shown))):
        before, now = shown[offset], broker.log[offset]
        if before != now:
            raise Violation(f"B: {before} was seen at {offset}, now {now}")
