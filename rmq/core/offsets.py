"""Two kinds of offsets, which look alike and mean different things.

The signatures of the store, of the cluster and of `StoredMessage` name the kind, and
mypy checks it. Arithmetic and requests give a plain `int`: the caller converts it.
Private functions that only compute have plain integers.
"""

from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""Position of a byte in the log, counted from the first byte ever stored."""

QueueOffset = NewType("QueueOffset", int)
"""Position of a message in its queue, counted in messages."""
