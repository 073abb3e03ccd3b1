"""The queue of a message with a key. Java's `SelectMessageQueueByHash`."""

from rmq._fastpath.bytes.hashing import java_hash


def index_of_key(key: str, count: int) -> int:
    """Return the index of the queue of a key.

    Java takes the absolute value after the division; the result is the same.
    """
    return abs(java_hash(key)) % count
