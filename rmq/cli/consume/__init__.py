"""`rmq consume`: shows messages of a topic."""

from typing import Final

BROWSE_GROUP: Final = "rmq-consume"
"""Group name in the pulls of a reader without a group."""
