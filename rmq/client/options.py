"""Options of producers and consumers, checked and in groups."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from rmq.core.errors import ConfigError, RequestRejected
from rmq.protocol.topics import validate_group

_OTHER_STARTS: Final = {
    "earliest": "first",
    "beginning": "first",
    "oldest": "first",
    "latest": "last",
    "end": "last",
    "newest": "last",
}
"""Values of `start` in other clients, each with the value of this client."""


class ConsumerGroup(NamedTuple):
    """A consumer group; `name` is the name on the wire.

    `max_attempts` is the number of redeliveries of a message, None for no limit.
    """

    name: str
    namespace: str
    ordered: bool
    broadcast: bool
    max_attempts: int | None

    def is_last_attempt(self, attempt: int) -> bool:
        """Whether a message that fails in this attempt goes to the dead letters."""
        return self.max_attempts is not None and attempt > self.max_attempts


class FetchLimits(NamedTuple):
    """The maximum numbers of messages in one request, and of messages that wait for
    their ack.
    """

    fetch_count: int
    max_count: int
    max_bytes: int


def check_group(name: str) -> None:
    """Raise ConfigError unless a name can be the name of a group."""
    if not isinstance(name, str):
        raise ConfigError(f"group: {name!r} is not a text")
    try:
        validate_group(name)
    except RequestRejected as error:
        raise ConfigError(f"group: {name!r}: {error.remark}") from error


def check_word(option: str, value: object, words: Sequence[str]) -> None:
    """Raise ConfigError unless a value is one of some words."""
    if value not in words:
        names = ", ".join(repr(each) for each in words)
        raise ConfigError(f"{option}: {value!r} is not one of {names}")


def check_start(start: object) -> None:
    """Raise ConfigError unless a value is a valid start of a group."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ConfigError(f"start: {start} has no time zone")
        return
    if start in ("last", "first"):
        return
    meant = _OTHER_STARTS.get(start) if isinstance(start, str) else None
    remedy = f"; write {meant!r}" if meant else ""
    raise ConfigError(
        f"start: {start!r} is not 'first', 'last' or a datetime with a time zone"
        f"{remedy}"
    )


def check_position(position: object) -> None:
    """Raise ValueError unless a value is a position at which a consumer can
    continue.
    """
    if isinstance(position, int) and not isinstance(position, bool):
        return
    try:
        check_start(position)
    except ConfigError as error:
        text = str(error).removeprefix("start: ")
        raise ValueError(f"{text}; or an offset") from error


def check_positive(**options: float) -> None:
    """Raise ConfigError for an option that is not positive."""
    for name, value in options.items():
        if not isinstance(value, int | float):
            raise ConfigError(f"{name}: {value!r} is not a number")
        if value <= 0:
            raise ConfigError(f"{name}: {value} is not positive")


def check_text(name: str, text: str) -> None:
    """Raise ConfigError for a text that the protocol cannot have."""
    if not isinstance(text, str):
        raise ConfigError(f"{name}: {text!r} is not a text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name}: {text!r} is no UTF-8") from error
