"""Subscription: the messages of a topic that a consumer receives."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, NamedTuple

from rmq._fastpath.bytes.hashing import java_hash
from rmq.core.errors import ConfigError
from rmq.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

ALL: Final = "*"

Start = Literal["last", "first"] | datetime
"""Where a group without committed offsets begins."""


class Sql(str):
    """An expression of SQL92 over properties: `Sql("amount > 3 AND region = 'EU'")`."""

    __slots__ = ()


class Subscription(NamedTuple):
    """A topic as on the wire, and an expression; `tags` None means all."""

    topic: str
    expression: str = ALL
    kind: str = "TAG"
    version: int = 0
    tags: frozenset[str] | None = None

    def to_wire(self) -> SubscriptionData:
        """Return its entry in heartbeats."""
        tags = sorted(self.tags or ())
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.expression,
            tags_set=tags,
            code_set=[java_hash(tag) for tag in tags],
            sub_version=self.version,
            expression_type=self.kind,
        )


def parse_subscription(topic: str, expression: "str | Sql" = ALL) -> Subscription:
    """Return a subscription; ConfigError for an expression without a tag."""
    version = time.time_ns() // 1_000_000
    if isinstance(expression, Sql):
        return Subscription(topic, str(expression), "SQL92", version)
    if expression.strip() in ("", ALL):
        return Subscription(topic, ALL, "TAG", version)
    tags = frozenset(each.strip() for each in expression.split("||")) - {""}
    if not tags:
        raise ConfigError(f"topics: the expression {expression!r} has no tag")
    return Subscription(topic, expression, "TAG", version, tags)


def normalize_topics(
    topics: "str | Mapping[str, str | Sql] | None",
) -> "dict[str, str | Sql]":
    """Return topics with their expressions; ConfigError if one is invalid."""
    if topics is None:
        return {}
    found = {topics: ALL} if isinstance(topics, str) else dict(topics)
    for topic, expression in found.items():
        parse_subscription(topic, expression)
    return found


def consumer_data(
    group: str,
    subscriptions: list[SubscriptionData],
    *,
    broadcast: bool,
    is_assigned: bool,
    start: Start,
) -> ConsumerData:
    """Return the entry of a consumer in heartbeats."""
    where = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    if start == "first":
        where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    elif start == "last":
        where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    return ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_ACTIVELY
        if is_assigned
        else ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.BROADCASTING
        if broadcast
        else MessageModel.CLUSTERING,
        consume_from_where=where,
        subscription_data_set=subscriptions,
    )
