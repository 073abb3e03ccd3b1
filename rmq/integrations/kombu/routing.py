"""Routing: which topics a queue reads, with which tags and patterns.

The broker has no table of bindings. The broker stores a message once, with its routing
key as tag, and each bound queue reads it from the same topic. A direct exchange with a
queue of its name, Celery's default, is the topic of that queue.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from rmq.integrations.names import Names, escape

DIRECT: Final = "direct"
FANOUT: Final = "fanout"
TOPIC: Final = "topic"


class Binding(NamedTuple):
    """A queue is bound to an exchange; `pattern` is a regular expression, or empty."""

    exchange: str
    kind: str
    key: str
    pattern: str = ""

    @property
    def is_queue(self) -> bool:
        """Whether the exchange stores its messages in the topic of a queue."""
        return self.kind == DIRECT and self.exchange == self.key


class Reading(NamedTuple):
    """A topic to read; without tags all messages, without patterns all keys."""

    topic: str
    tags: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()


def plan_durable(
    names: Names, queue: str, bindings: Iterable[Binding]
) -> list[Reading]:
    """Return the topics that a durable queue reads: its own, and the topics of its
    exchanges.
    """
    found = {names.topic(queue): Reading(names.topic(queue))}
    for each in bindings:
        if each.is_queue:
            topic = names.topic(each.key)
            found.setdefault(topic, Reading(topic))
        else:
            _add(found, names, each)
    return list(found.values())


def plan_ephemeral(
    names: Names, queue: str, bindings: Iterable[Binding]
) -> list[Reading]:
    """Return the topics that a queue of a process reads.

    All such queues share one topic for the messages to their names. A queue that is
    bound to a fanout does not read this topic: all its messages come through the
    exchange.
    """
    bindings = list(bindings)
    found: dict[str, Reading] = {}
    if not any(each.kind == FANOUT for each in bindings):
        keys = {each.key for each in bindings if each.is_queue}
        shared = names.exchange("")
        found[shared] = Reading(shared, frozenset(map(escape, {queue, *keys})))
    for each in bindings:
        if not each.is_queue:
            _add(found, names, each)
    return list(found.values())


def _add(found: dict[str, Reading], names: Names, binding: Binding) -> None:
    topic = names.exchange(binding.exchange)
    _, tags, patterns = found.get(topic, Reading(topic))
    if binding.kind == DIRECT:
        tags |= {escape(binding.key)}
    elif binding.kind == TOPIC:
        patterns = (*patterns, binding.pattern)
    found[topic] = Reading(topic, tags, patterns)
