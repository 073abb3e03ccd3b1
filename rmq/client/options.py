"""Options of producers and consumers, checked and in groups."""

from typing import NamedTuple

from rmq.core.errors import ConfigError


class ConsumerGroup(NamedTuple):
    """A consumer group; `name` is the name on the wire.

    `max_attempts` is how often a message comes again, None for no limit.
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
    """How many messages one request fetches, and how many may wait for their ack."""

    fetch_count: int
    max_count: int
    max_bytes: int


def check_positive(**options: float) -> None:
    """Raise ConfigError for an option that is not positive."""
    for name, value in options.items():
        if value <= 0:
            raise ConfigError(f"{name}: {value} is not positive")


def check_text(name: str, text: str) -> None:
    """Raise ConfigError for a text that the protocol cannot have."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name}: {text!r} is no UTF-8") from error
