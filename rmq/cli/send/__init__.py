"""`rmq send`: sends messages."""

from typing import Final

MAX_BODY_BYTES: Final = 128 << 20
"""Maximum bytes of a body: the largest maxMessageSize of a broker."""
