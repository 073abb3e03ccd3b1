"""LiteRules: the attributes of topics and groups that concern lite topics.

Known in Java as `LiteMetadataUtil`.
"""

from typing import Final

from rmq.plugin import BrokerContext, RequestRejected
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import ResponseCode

_TYPE: Final = "message.type"
_EXPIRATION: Final = "lite.topic.expiration"
_BIND: Final = "lite.bind.topic"
_MODEL: Final = "lite.sub.model"
_RESET_EXCLUSIVE: Final = "lite.sub.reset.offset.exclusive"
_RESET_UNSUBSCRIBE: Final = "lite.sub.reset.offset.unsubscribe"
_MOST_EVENTS: Final = "lite.sub.client.max.event.cnt"
_WILDCARD: Final = "lite.sub.wildcard"

MAX_EVENTS: Final = 10_000
"""Maximum size of a client's set of events.

Java has no limit; here the set is in memory.
"""


def is_lite(topic: TopicConfig) -> bool:
    """Whether a topic is a parent of lite topics."""
    return topic.attributes.get(_TYPE) == "LITE"


def expiration_minutes(topic: TopicConfig) -> int:
    """Return the minutes after which lite topics expire; -1: never."""
    text = topic.attributes.get(_EXPIRATION, "-1")
    return int(text) if is_lite(topic) and text.isdecimal() else -1


def bound_topic(group: SubscriptionGroupConfig) -> str | None:
    """Return the parent topic of a lite group; None for an ordinary group."""
    return group.attributes.get(_BIND)


class LiteRules:
    """Looks up the rules of topics and groups by name."""

    def __init__(self, broker: BrokerContext) -> None:
        self._topics = broker.topics
        self._groups = broker.groups

    def _get_attribute(self, group: str, name: str) -> str | None:
        config = self._groups.get(group)
        return None if config is None else config.attributes.get(name)

    def bound_topic(self, group: str) -> str | None:
        """Return the parent topic of a lite group; None for other groups."""
        return self._get_attribute(group, _BIND)

    def is_exclusive(self, group: str) -> bool:
        """Whether a lite topic has only one client of the group, the latest."""
        return self._get_attribute(group, _MODEL) == "Exclusive"

    def is_wildcard(self, group: str) -> bool:
        """Whether the clients of a group subscribe to every lite topic."""
        return self._get_attribute(group, _WILDCARD) is not None

    def resets_evicted(self, group: str) -> bool:
        """Whether an eviction resets the group's offset in the lite topic."""
        return (self._get_attribute(group, _RESET_EXCLUSIVE) or "").lower() == "true"

    def resets_removed(self, group: str) -> bool:
        """Whether an unsubscription resets the group's offset in the lite topic."""
        return (self._get_attribute(group, _RESET_UNSUBSCRIBE) or "").lower() == "true"

    def event_limit(self, group: str, default: int) -> int:
        """Return the limit of events of a client of the group."""
        text = self._get_attribute(group, _MOST_EVENTS) or ""
        is_number = text.isascii() and text.isdecimal() and len(text) <= 9
        most = int(text) if is_number else 0
        return min(most, MAX_EVENTS) if most > 0 else default

    def find_parent(
        self, name: str, remark: str = "Topic [%s] type not match."
    ) -> TopicConfig:
        """Return a parent topic; refuse other names."""
        topic = self._topics.get(name)
        if topic is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST, f"Topic [{name}] not exist."
            )
        if not is_lite(topic):
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, remark % name)
        return topic
