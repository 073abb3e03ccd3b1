"""Which queues of a topic a member of a group gets.

The members of a group may speak several languages, and each computes its own share: the
results must equal those of Java's clients, the order included. Java compares text by
UTF-16 units.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from rmq.client.core.routes import MessageQueue

T = TypeVar("T")
Allocate = Callable[[str, Sequence[str], Sequence[MessageQueue]], list[MessageQueue]]
"""From our client id, all members and all queues in order: the queues that are ours."""


def java_order(text: str) -> bytes:
    """Return what sorts text as Java does."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_queues(queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Sort by topic, broker and number."""
    return sorted(
        queues,
        key=lambda each: (java_order(each.topic), java_order(each.broker), each[2]),
    )


def average(me: str, members: Sequence[str], queues: Sequence[T]) -> list[T]:
    """Give each member a run of queues; the first ones get one more.

    Known in Java as `AllocateMessageQueueAveragely`, and AVG in request 400.
    """
    if me not in members:
        return []
    index = members.index(me)
    size, rest = divmod(len(queues), len(members))
    start = index * size + min(index, rest)
    return list(queues[start : start + size + (index < rest)])


def circle(me: str, members: Sequence[str], queues: Sequence[T]) -> list[T]:
    """Deal the queues like cards. Known in Java as `AllocateMessageQueueByCircle`."""
    if me not in members:
        return []
    return list(queues[members.index(me) :: len(members)])


STRATEGIES: dict[str, Allocate] = {"average": average, "circle": circle}
