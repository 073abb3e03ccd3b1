"""Strategies that divide the queues of a topic among the members of a group.

Java's `AllocateMessageQueueStrategy`. Each member computes its own share, in its own
language. The result must equal the result of Java's clients, including the order. Java
compares text by UTF-16 units.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from rmq.client.core.routes import MessageQueue

T = TypeVar("T")
Allocate = Callable[[str, Sequence[str], Sequence[MessageQueue]], list[MessageQueue]]
"""Function that maps a client id, all members and all queues, in order, to the queues
of this client.
"""


def java_order(text: str) -> bytes:
    """Return the sort key by which Java orders text."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_queues(queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Sort by topic, broker and number."""
    return sorted(
        queues,
        key=lambda each: (java_order(each.topic), java_order(each.broker), each[2]),
    )


def allocate_average(me: str, members: Sequence[str], queues: Sequence[T]) -> list[T]:
    """Give each member adjacent queues; the first members may get one more queue.

    Known in Java as `AllocateMessageQueueAveragely`, and AVG in request 400.
    """
    if me not in members:
        return []
    index = members.index(me)
    size, rest = divmod(len(queues), len(members))
    start = index * size + min(index, rest)
    return list(queues[start : start + size + (index < rest)])


def allocate_in_circle(me: str, members: Sequence[str], queues: Sequence[T]) -> list[T]:
    """Give each member one queue in turn; Java's `AllocateMessageQueueByCircle`."""
    if me not in members:
        return []
    return list(queues[members.index(me) :: len(members)])


STRATEGIES: dict[str, Allocate] = {
    "average": allocate_average,
    "circle": allocate_in_circle,
}
