"""The consistent hash by which Java's proxy chooses queues: Guava's `consistentHash`.

It chooses the queue of a lite topic, and the queue of a message group. So the order of
messages stays the same when clients move from Java's proxy to a broker.
"""

from typing import Final

from rmq._fastpath.bytes.hashing import java_hash

_MULTIPLIER: Final = 2_862_933_555_777_941_757
_MASK: Final = (1 << 64) - 1


def choose_bucket(name: str, count: int) -> int:
    """Return the number of the queue of a name, by consistent hashing.

    >>> [choose_bucket(f"lite{number}", 8) for number in range(4)]
    [3, 0, 4, 7]
    """
    state = java_hash(name) & _MASK
    candidate = 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        number = (state >> 33) + 1
        following = int((candidate + 1) / (number / (1 << 31)))
        if number == 1 << 31 or following >= count:  # the first is negative in Java
            return candidate
        candidate = following
