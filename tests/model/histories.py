"""Every history of a small group: the steps of `replication`, in all orders.

`explore` visits all states breadth-first, and returns how many there are; it raises
`Violation` with the shortest history that breaks a promise.

What no later step can tell apart is one state: brokers under other ids (`canonical`),
epochs and numbers of sets in the same order, what can have no effect any more
(`tidied`); a message that is nowhere any more gives its name to the next one.  So there
are finitely many states although brokers crash, and are elected, for ever.
"""

from collections import defaultdict, deque
from functools import cache
from itertools import chain, permutations, product

from rmq.cluster.wire import Epoch
from tests.model.replication import Broker, Model, State, Violation

PLAIN = Broker._fields.index("follows")
"""The fields of a broker before this one name no other broker."""

PROMISES = State._fields.index("acknowledged")
"""The fields of a state from this one on name no broker."""


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
            if after == state:
                continue
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


def tidied(state, rules):
    """The same state without what has no effect any more."""
    for one, broker in enumerate(state.brokers, 1):
        tidy = without_effect(broker, state.epoch, state.number)
        if not rules.loses_tail and broker.durable < len(broker.log):
            tidy = tidy._replace(durable=len(broker.log))
        if tidy is not broker:
            state = state.put(one, tidy)
    return renumbered(state)


def without_effect(broker, epoch, number):
    if broker.noted is not None and broker.noted[:2] != (epoch, number):
        broker = broker._replace(noted=None)
    if broker.known is None and broker.start:
        broker = broker._replace(start=0)
    is_idle = broker.known is None and not broker.follows
    if is_idle and broker.term not in (0, epoch):
        broker = broker._replace(term=0)
    if broker.told is not None and broker.told[1] <= broker.known.number:
        broker = broker._replace(told=None)
    return broker


def renumbered(state):
    """The same state with the smallest epochs, and numbers of sets, in their order."""
    epochs, numbers = {0, state.epoch}, {state.number}
    for broker in state.brokers:
        epochs.add(broker.term)
        epochs.update(each.number for each in broker.epochs)
        if broker.known is not None:
            numbers.add(broker.known.number)
        if broker.told is not None:
            numbers.add(broker.told[1])
    if len(epochs) > state.epoch and len(numbers) == state.number:
        return state
    epoch_of = {each: place for place, each in enumerate(sorted(epochs))}
    number_of = {each: place for place, each in enumerate(sorted(numbers), 1)}
    for one, broker in enumerate(state.brokers, 1):
        known, noted, told = broker.known, broker.noted, broker.told
        if known is not None:
            known = known._replace(number=number_of[known.number])
        if noted is not None:
            noted = epoch_of[noted[0]], number_of[noted[1]], noted[2]
        if told is not None:
            told = told[0], number_of[told[1]]
        listed = tuple(Epoch(epoch_of[each], start) for each, start in broker.epochs)
        state = state.put(one, broker._replace(
            term=epoch_of[broker.term], epochs=listed, known=known, noted=noted,
            told=told,
        ))  # fmt: skip
    return state._replace(epoch=epoch_of[state.epoch], number=number_of[state.number])


@cache
def renamed(members, names):
    """A set of brokers under other ids: `names` has the new one of each."""
    return members and frozenset(names[one] for one in members)


@cache
def hash_of(broker, names):
    """One number for a broker, under other ids."""
    known, noted, told = broker.known, broker.noted, broker.told
    if known is not None:
        members, asked = renamed(known.members, names), renamed(known.asked, names)
        known = known._replace(members=members, asked=asked)
    if noted is not None:
        noted = *noted[:2], renamed(noted[2], names)
    if told is not None:
        told = renamed(told[0], names), told[1]
    return hash((broker[:PLAIN], names[broker.follows], known, noted, told))


def canonical(state):
    """One number for all states that differ in the ids of brokers only."""
    alike = defaultdict(list)
    for one, broker in enumerate(state.brokers, 1):
        is_master, is_member = one == state.master, one in state.members
        mark = broker[:PLAIN], broker.known is None, is_master, is_member
        alike[hash(mark)].append(one)
    orders = product(*(permutations(alike[mark]) for mark in sorted(alike)))
    return min(hash_as(state, tuple(chain(*order))) for order in orders)


def hash_as(state, order):
    """One number for a state with its brokers in this order."""
    names = 0, *(order.index(one) + 1 for one in range(1, len(order) + 1))
    return hash((
        *(hash_of(state.of(one), names) for one in order),
        names[state.master],
        state.epoch,
        renamed(state.members, names),
        state.number,
        frozenset(renamed(each, names) for each in state.requests),
        *state[PROMISES:],
    ))  # fmt: skip
