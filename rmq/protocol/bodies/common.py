"""Bodies and parts that many requests share."""

from msgspec import Struct, field

from rmq.protocol.bodies import Body
from rmq.protocol.headers import I32


class MessageQueue(Struct, kw_only=True, frozen=True, rename="camel"):
    """One queue of a topic on one broker; may be the name of a member in a table."""

    topic: str
    broker_name: str
    queue_id: I32


class KVTable(Body, kw_only=True):
    """Names and values: runtime facts, order configuration."""

    table: dict[str, str] = field(default_factory=dict)


class TopicList(Body, kw_only=True):
    """Names of topics; only a list of system topics has `broker_addr`."""

    broker_addr: str | None = None
    topic_list: list[str] = field(default_factory=list)


class GroupList(Body, kw_only=True):
    """Names of groups."""

    group_list: list[str] = field(default_factory=list)
