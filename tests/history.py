"""What senders were told, beside what is served: the judge of all laboratories.

A laboratory says when a message is sent (`invoke`) and what the sender hears of it
(`answer`); then `faults` compares that with all that a broker serves, that a copy of a
store has, or that consumers got.  A key names one message, a place has one message for
good.  Of a send without an answer, or with one of UNCERTAIN, nobody knows: its message
may be there.  A key that was sent several times may be there as often.  A half message
is sent when its transaction is committed.

Everything is found in O(n log n) for n sends and reads.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from rmq.protocol.codes import ResponseCode

Key = Hashable
UNCERTAIN = {
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
}


class Place(NamedTuple):
    """Where a message is; the brokers of a group share their places."""

    topic: str
    queue_id: int
    offset: int
    broker: str = ""

    @property
    def queue(self) -> tuple[str, int, str]:
        return self.topic, self.queue_id, self.broker


Read = tuple[Key, Place | None]


class Kind(StrEnum):
    """What can be wrong with a message."""

    LOST = "acknowledged, and not there"
    MOVED = "acknowledged at another place"
    CHANGED = "its place had another message"
    REPEATED = "there more often than it was sent"
    REFUSED = "refused, and there"
    UNKNOWN = "there, and sent by nobody"
    HOLE = "the offset before it has no message"
    OVERTAKEN = "sent after the answer to a message that follows it"
    EARLY = "came before the messages that precede it"


class Fault(NamedTuple):
    """A message, what is wrong with it, and where."""

    kind: Kind
    key: Key
    place: Place | None = None
    other: object = None


@dataclass
class Sent:
    """A key, from its first send to its acknowledgement."""

    invoked: int
    lane: Hashable = None
    sends: int = 0
    refusals: int = 0
    answered: int | None = None
    place: Place | None = None

    @property
    def most(self) -> int:
        """How often the message may be there."""
        return self.sends - self.refusals


class History:
    """Sends and their answers, in the order in which a laboratory saw them."""

    def __init__(self) -> None:
        self._clock = itertools.count()
        self._sent: dict[Key, Sent] = {}
        self._keys: dict[Place, Key] = {}
        self._changed: list[Fault] = []

    def invoke(self, key: Key, lane: Hashable = None) -> None:
        """Somebody is about to send it.

        Reads without places keep the order of a lane: one sender, one queue.
        """
        sent = self._sent.setdefault(key, Sent(next(self._clock), lane))
        sent.sends += 1

    def answer(self, key: Key, code: int = 0, place: Place | None = None) -> None:
        """The sender got this answer."""
        sent = self._sent[key]
        if code == ResponseCode.SUCCESS:
            sent.answered, sent.place = next(self._clock), place
            self._take(key, place)
        elif code not in UNCERTAIN:
            sent.refusals += 1

    def of(self, is_promised: Callable[[Key], bool]) -> "History":
        """Make one in which only these messages were acknowledged."""
        made = History()
        made._clock = self._clock
        for key, sent in self._sent.items():
            made._sent[key] = replace(sent)
            if sent.answered is not None and not is_promised(key):
                made._sent[key].answered = made._sent[key].place = None
        return made

    def faults(
        self,
        reads: Iterable[Read],
        *,
        delayed: Collection[str] = (),
        is_in_order: bool = False,
    ) -> list[Fault]:
        """Judge everything that is there, in the order in which it was read.

        Messages of the topics `delayed` come in any order, and may be there more often.
        `is_in_order`: queues were read from their beginning on; who reads again begins
        at any earlier place.
        """
        reads = list(reads)
        for key, place in reads:
            self._take(key, place)
        found = [
            *self._changed,
            *self._missing(reads),
            *self._unwanted(reads, delayed),
            *holes(reads),
            *self._overtaken(reads, delayed),
        ]
        return [*found, *early(reads)] if is_in_order else found

    def _take(self, key: Key, place: Place | None) -> None:
        """Remember whose place it is; also two masters may have promised it."""
        if place is not None and self._keys.setdefault(place, key) != key:
            self._changed.append(Fault(Kind.CHANGED, key, place, self._keys[place]))

    def _missing(self, reads: list[Read]) -> Iterator[Fault]:
        places: dict[Key, set[Place | None]] = defaultdict(set)
        for key, place in reads:
            places[key].add(place)
        for key, sent in self._sent.items():
            if sent.answered is None:
                continue
            if key not in places:
                yield Fault(Kind.LOST, key, sent.place)
            elif sent.place and not places[key] & {sent.place, None}:
                yield Fault(Kind.MOVED, key, sent.place, places[key])

    def _unwanted(self, reads: list[Read], delayed: Collection[str]) -> Iterator[Fault]:
        counted = Counter(key for key, _ in set(reads))
        for key, place in dict(reads).items():
            sent = self._sent.get(key)
            if sent is None:
                yield Fault(Kind.UNKNOWN, key, place)
            elif sent.most == 0:
                yield Fault(Kind.REFUSED, key, place)
            elif place and place.topic not in delayed and counted[key] > sent.most:
                yield Fault(Kind.REPEATED, key, place, counted[key])

    def _overtaken(
        self, reads: list[Read], delayed: Collection[str]
    ) -> Iterator[Fault]:
        """What was sent after an answer comes after it: in a queue, or in a lane."""
        queues: dict[Hashable, dict[Key, None]] = defaultdict(dict)
        for key, place in sorted_by_offset(reads):
            sent = self._sent.get(key)
            if place and place.topic in delayed:
                continue
            queue = place.queue if place else sent and sent.lane
            if sent is not None and queue is not None:
                queues[queue].setdefault(key)
        for queue in queues.values():
            first_answer, answered = None, None
            for key in reversed(queue):
                sent = self._sent[key]
                if first_answer is not None and first_answer < sent.invoked:
                    yield Fault(Kind.OVERTAKEN, key, sent.place, answered)
                if sent.answered is not None and (
                    first_answer is None or sent.answered < first_answer
                ):
                    first_answer, answered = sent.answered, key


def sorted_by_offset(reads: list[Read]) -> list[Read]:
    """Reads with places in the order of these, others as they came."""
    return sorted(reads, key=lambda read: read[1].offset if read[1] else -1)


def holes(reads: list[Read]) -> Iterator[Fault]:
    """Queues whose offsets do not follow each other."""
    following: dict[Hashable, int] = {}
    for key, place in sorted_by_offset(reads):
        if place is None:
            continue
        expected = following.get(place.queue, place.offset)
        if place.offset > expected:
            yield Fault(Kind.HOLE, key, place, expected)
        following[place.queue] = place.offset + 1


def early(reads: list[Read]) -> Iterator[Fault]:
    """Messages that came for the first time before those that precede them."""
    following: Counter[Hashable] = Counter()
    for key, place in reads:
        if place is None:
            continue
        if place.offset > following[place.queue]:
            yield Fault(Kind.EARLY, key, place, following[place.queue])
        following[place.queue] = max(following[place.queue], place.offset + 1)
