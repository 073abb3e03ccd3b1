"""Two kinds of offsets, which look alike and mean different things.

The signatures of `StoreReader`, its results and `StoredMessage` name the kind, so that
mypy tells them apart. Arithmetic and requests give a plain `int`: the caller says which
kind it is. Within the store most offsets are computed; there they are plain integers.
"""

from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""Of a byte in the log, counted from the first that was ever stored."""

QueueOffset = NewType("QueueOffset", int)
"""Of a message in its queue, counted in messages."""
