"""Which queue a message with a key goes to."""

from rmq._fastpath import java_hash


def index_of_key(key: str, count: int) -> int:
    """Return the place of a key's queue. Known in Java as `SelectMessageQueueByHash`.

    Java takes the absolute value after the division; for any count that is the same.
    """
    return abs(java_hash(key)) % count
