"""Every history of a small group with a controller, over the rules that brokers run.

Three brokers, one controller, a few messages; steps in any order: a master appends, a
slave copies, reports, flushes, loses its connection, the controller carries a request
out, an answer is lost, somebody is elected, learns its role, crashes with or without
the tail of its log, starts again.  `SyncSet` and `Epochs` are those of production; a
log is a string of messages, one byte each.

`explore` visits all states breadth-first, and returns how many there are; it raises
`Violation` with the shortest history that breaks a promise:

* A: what was acknowledged is in the log of every later master;
* B: what a reader saw at an offset nobody ever sees differently;
* C: an epoch has one master.

What no later step can tell apart is one state: brokers under other ids (`canonical`);
numbers of sets in the same order, and what can have no effect any more (`tidied`).  So
there are finitely many states although connections are lost for ever.
"""

from collections import defaultdict, deque
from itertools import chain, permutations, product
from typing import NamedTuple

from rmq.replication.epochs import Epochs
from rmq.replication.sync_set import SyncSet
from rmq.replication.wire import Epoch

PATIENCE_MS = 1


class Violation(AssertionError):
    """A promise that a history breaks."""


class Rules(NamedTuple):
    """What is as in production, and how much may happen."""

    brokers: int = 2
    messages: int = 2
    epochs: int = 3
    crashes: int = 1
    """Of each broker."""

    crashes_in_all: int | None = None
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
    """Connections, requests and answers may be lost."""


class Broker(NamedTuple):
    """One broker; `set_state` is that of a master's `SyncSet`."""

    log: str = ""
    durable: int = 0
    epochs: tuple[Epoch, ...] = ()
    is_up: bool = True
    term: int = 0
    is_master: bool = False
    follows: int = 0
    lacks: bool = False
    crashes: int = 0
    seen: int = 0
    """What its readers may see."""

    noted: tuple | None = None
    """Number and set of the last request, which is in a file."""

    start: int = 0
    """Where its term began: it acknowledges what came after."""

    set_state: tuple | None = None


class State(NamedTuple):
    """All brokers, the controller, requests on their way, and what was promised."""

    brokers: tuple[Broker, ...]
    master: int = 0
    epoch: int = 0
    members: frozenset = frozenset()
    number: int = 0
    flying: frozenset = frozenset()
    """Requests: broker, or 0 if it died meanwhile; epoch, number, set."""

    answers: frozenset = frozenset()
    """Answers: broker, epoch, number or -1 for a refusal, set, number asked with."""

    acknowledged: frozenset = frozenset()
    shown: tuple = ()
    """The message that readers saw, by offset."""

    next: int = 0


def group_of(state, rules):
    """Make the production's set of a state."""
    own, members, number, start, confirmed, asked, acks = state
    group = rules.group(
        own, members, number=number, start=start, confirmed=confirmed,
        patience_ms=PATIENCE_MS,
    )  # fmt: skip
    group.asked = asked
    for broker_id, offset in acks:
        group.report(broker_id, offset, end=max(offset, 0), now_ms=0)
        group.was_at_end(broker_id, 0)
    return group


def state_of(group, start, end):
    acks = tuple(sorted(group.acknowledged.items()))
    confirmed = group.confirmed(end)
    return (
        group.own_id,
        group.members,
        group.number,
        start,
        confirmed,
        group.asked,
        acks,
    )


class Model:
    """The steps."""

    def __init__(self, rules):
        self.rules = rules
        self.ids = range(1, rules.brokers + 1)

    def first(self):
        """Broker 1 is the master of an empty group, the others are in its set."""
        everybody = frozenset(self.ids)
        begun = (Epoch(1, 0),)
        master = Broker(
            epochs=begun, term=1, is_master=True,
            set_state=(
                1, everybody, 1, 0, 0, None, tuple((one, 0) for one in self.ids[1:]),
            ),
        )  # fmt: skip
        slaves = (Broker(term=1, follows=1) for _ in self.ids[1:])
        return State((master, *slaves), master=1, epoch=1, members=everybody, number=1)

    def steps(self, state):
        """Yield name and next state of everything that may happen."""
        for one in self.ids:
            broker = state.brokers[one - 1]
            if broker.is_up:
                yield from self._of_broker(state, one, broker)
            else:
                up = broker._replace(
                    is_up=True, term=0, is_master=False, set_state=None
                )
                yield f"{one} starts", self._put(state, one, up)
        yield from self._of_controller(state)

    def _of_broker(self, state, one, broker):
        if broker.is_master:
            yield from self._of_master(state, one, broker)
        if broker.durable < len(broker.log):
            done = broker._replace(durable=len(broker.log))
            yield f"{one} flushes", self._settle(self._put(state, one, done))
        if broker.follows:
            yield from self._of_slave(state, one, broker)
        elif broker.term and not broker.is_master and broker.term == state.epoch:
            yield from self._connect(state, one, broker, state.master)
        if self._may_learn(state, one, broker):
            yield f"{one} learns epoch {state.epoch}", self._role(state, one, broker)
        if self._may_crash(state, broker):
            yield from self._crash(state, one, broker)

    def _may_crash(self, state, broker):
        limit = self.rules.crashes_in_all
        total = sum(each.crashes for each in state.brokers)
        return broker.crashes < self.rules.crashes and (limit is None or total < limit)

    def _of_master(self, state, one, broker):
        rules = self.rules
        if state.next < rules.messages and (
            len(broker.set_state[1]) >= rules.least_in_sync
        ):
            message = "abcdefgh"[state.next]
            grown = broker._replace(log=broker.log + message)
            after = self._put(state, one, grown)._replace(next=state.next + 1)
            yield f"{one} appends {message}", self._settle(after)
        group = group_of(broker.set_state, rules)
        wanted = group.wish(len(broker.log), 0)
        flight = one, broker.term, group.number, wanted
        if wanted is not None and flight not in state.flying:
            group.ask(wanted)
            noted = broker._replace(noted=(broker.term, group.number, wanted))
            after = self._with(self._put(state, one, noted), one, group)
            after = after._replace(flying=after.flying | {flight})
            yield f"{one} asks for {set(wanted)}", after
        for each in sorted(group.acknowledged) if rules.is_lossy else ():
            group = group_of(broker.set_state, rules)
            group.leave(each)
            other = state.brokers[each - 1]
            after = self._with(state, one, group)
            if other.follows == one:
                after = self._put(after, each, other._replace(follows=0))
            yield f"{one} loses {each}", self._settle(after)

    def _of_slave(self, state, one, broker):
        rules, master = self.rules, state.brokers[broker.follows - 1]
        if not master.is_up or not master.is_master:
            yield (
                f"{one} loses its master",
                self._put(state, one, broker._replace(follows=0)),
            )
            return
        if len(broker.log) < len(master.log):
            epochs = rules.epoch_list(broker.epochs)
            offset = len(broker.log)
            found = rules.epoch_list(master.epochs).at(offset)
            if found is not None and found[0] not in epochs.all()[-1:]:
                epochs.begin(found[0])
            grown = broker._replace(
                log=broker.log + master.log[offset], epochs=epochs.all()
            )
            grown = self._see(grown, master)
            yield f"{one} copies", self._settle(self._put(state, one, grown))
        group = group_of(master.set_state, rules)
        offset = len(broker.log)
        if rules.is_sync_flush and not rules.reports_written:
            offset = broker.durable
        if rules.over_reports:
            offset = len(master.log)
        if group.acknowledged.get(one, -1) < offset:
            group.report(one, offset, end=len(master.log), now_ms=0)
            group.was_at_end(one, 0)
            after = self._with(state, broker.follows, group)
            yield f"{one} reports {offset}", self._settle(after)
        seen = self._see(broker, master)
        if seen != broker:
            yield f"{one} hears", self._settle(self._put(state, one, seen))

    def _see(self, broker, master):
        safe = broker.durable if self.rules.is_sync_flush else len(broker.log)
        return broker._replace(seen=max(broker.seen, min(master.seen, safe)))

    def _connect(self, state, one, broker, other):
        """Follow the master of the term, if it is that already."""
        if other in (0, one):
            return
        master = state.brokers[other - 1]
        if not (master.is_up and master.is_master and master.term == broker.term):
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
        epochs.cut(point)
        following = broker._replace(
            log=broker.log[:point], durable=min(broker.durable, point),
            epochs=epochs.all(), follows=other, seen=min(broker.seen, point),
            lacks=False,
        )  # fmt: skip
        yield f"{one} follows {other} from {point}", self._put(state, one, following)

    def _may_learn(self, state, one, broker):
        if broker.term >= state.epoch:
            return False
        if broker.lacks and self.rules.steps_aside:
            others = state.members - {one}
            return not others or state.master != one
        return True

    def _role(self, state, one, broker):
        rules = self.rules
        fresh = broker._replace(
            term=state.epoch, follows=0, is_master=False, set_state=None
        )
        if state.master == one:
            end = len(broker.log)
            epochs = self.rules.epoch_list(broker.epochs)
            if epochs.last != state.epoch:
                epochs.begin(Epoch(state.epoch, end if epochs.all() else 0))
            self._check_kept(state, one, broker)
            self._check_alone(state)
            asked = None
            if rules.notes_requests and fresh.noted is not None:
                *known, wanted = fresh.noted
                asked = wanted if known == [state.epoch, state.number] else None
            is_alone = state.members | (asked or state.members) == {one}
            if rules.forgets_requests_at_start:
                is_alone = state.members == {one}
            confirmed = end if is_alone else min(broker.seen, end)
            fresh = fresh._replace(
                is_master=True, epochs=epochs.all(), seen=confirmed, start=end,
                durable=end,
                set_state=(
                    one, state.members, state.number, epochs.all()[-1].start,
                    confirmed, asked, (),
                ),
            )  # fmt: skip
        return self._settle(self._left(self._put(state, one, fresh), one))

    def _left(self, state, one):
        """End the connections to a broker."""
        for each in self.ids:
            other = state.brokers[each - 1]
            if other.follows == one:
                state = self._put(state, each, other._replace(follows=0))
        return state

    def _check_alone(self, state):
        for each in state.brokers:
            if each.is_master and each.term == state.epoch:
                raise Violation(f"C: epoch {state.epoch} has two masters")

    def _check_kept(self, state, one, broker):
        missing = state.acknowledged - set(broker.log)
        if missing:
            raise Violation(
                f"A: {one} becomes the master without {''.join(sorted(missing))}"
            )

    def _crash(self, state, one, broker):
        rules = self.rules
        least = broker.durable if rules.loses_tail else len(broker.log)
        for kept in range(least, len(broker.log) + 1):
            epochs = rules.epoch_list(broker.epochs)
            epochs.cut(kept)
            is_short = kept < len(broker.log)
            down = broker._replace(
                log=broker.log[:kept], durable=kept, epochs=epochs.all(), is_up=False,
                is_master=False, set_state=None, follows=0, term=0,
                crashes=broker.crashes + 1, seen=min(broker.seen, kept),
                lacks=broker.lacks or (is_short and not rules.is_sync_flush),
            )  # fmt: skip
            after = self._left(self._put(state, one, down), one)
            after = after._replace(flying=orphaned(after.flying, one))
            for each in self.ids:
                master = after.brokers[each - 1]
                if master.is_master:
                    group = group_of(master.set_state, rules)
                    group.leave(one)
                    after = self._with(after, each, group)
            yield f"{one} crashes, keeps {kept}", self._settle(after)

    def _of_controller(self, state):
        for flight in state.flying:
            one, epoch, number, wanted = flight
            after = state._replace(flying=state.flying - {flight})
            if self.rules.is_lossy:
                yield f"the request {set(wanted)} is lost", after
            is_right = (epoch, number) == (state.epoch, state.number)
            if is_right and wanted != state.members:
                after = after._replace(members=wanted, number=number + 1)
                told = one, epoch, number + 1, wanted, number
            else:
                told = one, epoch, -1, wanted, number
            if one:
                after = after._replace(answers=after.answers | {told})
            yield f"{set(wanted)} is answered with {told[2]}", after
        for told in state.answers:
            after = state._replace(answers=state.answers - {told})
            if self.rules.is_lossy:
                yield "an answer is lost", after
            yield "an answer arrives", self._hear(after, *told)
        if state.epoch < self.rules.epochs:
            for one in sorted(state.members):
                broker = state.brokers[one - 1]
                is_other = one != state.master or not broker.term
                is_aside = self.rules.steps_aside and broker.lacks
                is_alone = state.members == {one}
                master = state.brokers[state.master - 1]
                is_wanted = not self.rules.elects_for_the_dead or not master.term
                is_able = is_other and (is_alone or not is_aside)
                if broker.is_up and is_wanted and is_able:
                    yield f"{one} is elected", state._replace(
                        master=one, epoch=state.epoch + 1, members=frozenset({one}),
                        number=state.number + 1,
                    )  # fmt: skip

    def _hear(self, state, one, epoch, number, wanted, _asked):
        """The answer to a request; after a refusal the broker asks for the set."""
        broker = state.brokers[one - 1]
        group = group_of(broker.set_state, self.rules)
        if number >= 0:
            group.take(wanted, number)
        else:
            if self.rules.learns_refusals:
                if state.epoch != epoch:
                    return state
                group.take(state.members, state.number)
            group.refused()
        return self._settle(self._with(state, one, group))

    # -- what follows from a step

    def _put(self, state, one, broker):
        brokers = list(state.brokers)
        brokers[one - 1] = broker
        return state._replace(brokers=tuple(brokers))

    def _with(self, state, one, group):
        broker = state.brokers[one - 1]
        changed = state_of(group, broker.set_state[3], len(broker.log))
        return self._put(state, one, broker._replace(set_state=changed))

    def _settle(self, state):
        """Acknowledge and show what may be."""
        for one in self.ids:
            broker = state.brokers[one - 1]
            if broker.is_up and broker.is_master:
                state = self._acknowledge(state, one, broker)
        for broker in state.brokers:
            if broker.is_up:
                self._check_shown(state, broker)
                if broker.seen > len(state.shown):
                    state = state._replace(shown=tuple(broker.log[: broker.seen]))
        return state

    def _acknowledge(self, state, one, broker):
        group = group_of(broker.set_state, self.rules)
        end = len(broker.log)
        confirmed = group.confirmed(end)
        state = self._with(state, one, group)
        if self.rules.is_sync_flush:
            confirmed = min(confirmed, broker.durable)
        if len(group.members) < self.rules.least_in_sync:
            return state
        if confirmed <= broker.seen:
            return state
        new = frozenset(broker.log[max(broker.start, broker.seen) : confirmed])
        broker = state.brokers[one - 1]._replace(seen=confirmed)
        state = self._put(state, one, broker)
        if new:
            state = state._replace(acknowledged=state.acknowledged | new)
        master = state.brokers[state.master - 1]
        if master.is_master and master.term == state.epoch:
            self._check_kept(state, state.master, master)
        return state

    def _check_shown(self, state, broker):
        for offset in range(min(broker.seen, len(state.shown))):
            if broker.log[offset] != state.shown[offset]:
                raise Violation(
                    f"B: {state.shown[offset]} was seen at {offset}, now "
                    f"{broker.log[offset]}"
                )


def orphaned(flying, one):
    """Requests of a broker whose process has ended: nobody hears their answers."""
    return frozenset(
        (0, *rest) if each == one else (each, *rest) for each, *rest in flying
    )


def tidied(state, rules):
    """The same state without what has no effect any more."""
    present = state.epoch, state.number
    flying = {
        flight
        for flight in state.flying
        if flight[1:3] == present or is_refusal_heard(state, flight)
    }
    answers = {
        told for told in state.answers if is_heard(state.brokers[told[0] - 1], told)
    }
    numbers = {state.number}
    numbers.update(flight[2] for flight in flying)
    numbers.update(told[2] for told in answers if told[2] >= 0)
    numbers.update(told[4] for told in answers)
    brokers = []
    for broker in state.brokers:
        if broker.noted is not None and broker.noted[:2] != present:
            broker = broker._replace(noted=None)
        if not rules.loses_tail and broker.durable < len(broker.log):
            broker = broker._replace(durable=len(broker.log))
        if broker.set_state is not None:
            numbers.add(broker.set_state[2])
        brokers.append(broker)
    order = {number: place for place, number in enumerate(sorted(numbers), 1)}
    order[-1] = -1
    for index, broker in enumerate(brokers):
        if broker.noted is not None:
            term, number, wanted = broker.noted
            broker = broker._replace(noted=(term, order[number], wanted))
        if broker.set_state is not None:
            own, members, number, *rest = broker.set_state
            broker = broker._replace(set_state=(own, members, order[number], *rest))
        brokers[index] = broker
    return state._replace(
        brokers=tuple(brokers),
        number=order[state.number],
        flying=frozenset((o, e, order[n], w) for o, e, n, w in flying),
        answers=frozenset((o, e, order[n], w, order[a]) for o, e, n, w, a in answers),
    )


def is_refusal_heard(state, flight):
    one, epoch, number, wanted = flight
    told = one, epoch, -1, wanted, number
    return one > 0 and is_heard(state.brokers[one - 1], told)


def is_heard(broker, told):
    """Whether a broker waits for such an answer: later ones belong to no request."""
    _, epoch, number, wanted, asked_with = told
    if not broker.is_master or broker.term != epoch:
        return False
    _, _, known, _, _, asked, _ = broker.set_state
    return number > known or (number < 0 and (asked, known) == (wanted, asked_with))


def renamed(state, names):
    """The same state with other ids: brokers are equal before their first deed."""

    def some(members):
        return None if members is None else frozenset(names[one] for one in members)

    brokers = list(state.brokers)
    for one, broker in enumerate(state.brokers, 1):
        found, noted = broker.set_state, broker.noted
        if found is not None:
            own, members, number, start, confirmed, asked, acks = found
            acks = tuple(sorted((names[id_], offset) for id_, offset in acks))
            found = (
                names[own], some(members), number, start, confirmed, some(asked), acks,
            )  # fmt: skip
        if noted is not None:
            noted = (*noted[:2], some(noted[2]))
        brokers[names[one] - 1] = broker._replace(
            follows=names[broker.follows], set_state=found, noted=noted
        )
    return state._replace(
        brokers=tuple(brokers),
        master=names[state.master],
        members=some(state.members),
        flying=frozenset((names[o], e, n, some(w)) for o, e, n, w in state.flying),
        answers=frozenset(
            (names[o], e, n, some(w), a) for o, e, n, w, a in state.answers
        ),
    )


def canonical(state):
    """One number for all states that differ in the ids of brokers only."""
    alike = defaultdict(list)
    for one, broker in enumerate(state.brokers, 1):
        own = broker._replace(follows=0, noted=None, set_state=None)
        mark = hash((own, one == state.master, one in state.members))
        alike[mark].append(one)
    orders = product(*(permutations(alike[mark]) for mark in sorted(alike)))
    return min(
        hash(renamed(state, {0: 0} | {one: new for new, one in enumerate(order, 1)}))
        for order in (chain(*each) for each in orders)
    )


def explore(rules, limit=None):
    """Return how many states there are, and whether these are all."""
    model = Model(rules)
    first = tidied(model.first(), rules)
    before = {canonical(first): None}
    waiting = deque([(first, *before)])
    while waiting:
        state, key = waiting.popleft()
        steps = model.steps(state)
        while True:
            try:
                name, after = next(steps)
            except StopIteration:
                break
            except Violation as error:
                raise Violation(f"{error}\n{history(before, key)}") from error
            after = tidied(after, rules)
            found = canonical(after)
            if found not in before:
                before[found] = key, name
                waiting.append((after, found))
        if limit is not None and len(before) >= limit:
            return len(before), False
    return len(before), True


def history(before, key):
    """The shortest way to a state."""
    names = []
    while before[key] is not None:
        key, name = before[key]
        names.append(name)
    return "\n".join(reversed(names))
