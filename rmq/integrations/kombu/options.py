"""Options: `broker_transport_options` of Celery, checked once per connection."""

import logging
from collections.abc import Mapping
from typing import Any, Final, Self

import msgspec

logger = logging.getLogger(__name__)

DAY_S: Final = 86_400
LEAST_VISIBILITY_S: Final = 5.0
NOT_SUPPORTED: Final = {
    "fanout_prefix": "fanouts have topics of their own",
    "fanout_patterns": "fanouts have topics of their own",
    "global_keyprefix": "use topic_prefix and group_prefix",
    "priority_steps": "each priority has a queue of its own",
    "queue_order_strategy": "larger priorities come first",
    "sep": "names are not joined",
    "polling_interval": "the broker notifies workers",
    "master_name": "a name server finds the master",
    "sentinel_kwargs": "a name server finds the master",
    "unacked_restore_limit": "the broker delivers lost messages again",
    "max_connections": "a connection of kombu has one socket",
    "socket_keepalive": "requests find a broken connection",
}
"""Options of other transports, with the reason why they have no effect."""

FOR_KOMBU: Final = frozenset(
    {
        "client_properties", "confirm_publish", "max_retries", "interval_start",
        "interval_step", "interval_max", "errback",
    }
)  # fmt: skip
"""Options that kombu and Celery read themselves."""

_reported: set[str] = set()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options with their defaults.

    Args:
        visibility_timeout (float): seconds until another worker gets the messages of
            a dead worker.
        max_deliveries (int): deliveries of a message before it becomes a dead letter.
            With 0 there is no limit.
        native_eta (bool): tasks with an ETA wait in the broker, not in a worker.
        max_delay_s (int): the broker's `timerMaxDelaySec`.
        recover_s (float): how long a broker may be away before Celery is notified.
        topic_prefix (str): begins the name of each topic.
        group_prefix (str): begins the name of each group.
        create_topics (bool): topics are created when queues are declared.
        broker_name (str): the broker that has the queues. By default it is the first
            one by name.
    """

    visibility_timeout: float = 60.0
    max_deliveries: int = 16
    native_eta: bool = True
    max_delay_s: int = 3 * DAY_S
    recover_s: float = 120.0
    topic_prefix: str = ""
    group_prefix: str = ""
    create_topics: bool = True
    broker_name: str = ""

    def __post_init__(self) -> None:
        """Check the limits; ValueError names the option."""
        if self.visibility_timeout < LEAST_VISIBILITY_S:
            raise ValueError(
                f"visibility_timeout={self.visibility_timeout}: the minimum is "
                f"{LEAST_VISIBILITY_S:.0f} seconds"
            )
        for name in ("max_deliveries", "max_delay_s", "recover_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Return the options of a connection; ValueError names a wrong one."""
        known = {each: given[each] for each in cls.__struct_fields__ if each in given}
        for name in given.keys() - known.keys() - FOR_KOMBU - _reported:
            reason = NOT_SUPPORTED.get(name, "there is no such option")
            _reported.add(name)
            logger.warning("broker_transport_options: %s: %s", name, reason)
        try:
            return msgspec.convert(known, cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"broker_transport_options: {error}") from error
