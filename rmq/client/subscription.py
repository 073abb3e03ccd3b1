"""Subscription: the messages of a topic that a consumer receives."""

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, Literal, NamedTuple

from rmq._fastpath.bytes.hashing import java_hash
from rmq.core.errors import ConfigError, RequestRejected
from rmq.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rmq.protocol.topics import validate_topic

ALL: Final = "*"

Start = Literal["last", "first"] | datetime
"""The position at which a group without committed offsets begins."""


class Sql(str):
    """An expression of SQL92 over properties: `Sql("amount > 3 AND region = 'EU'")`."""

    __slots__ = ()


Topics = str | Iterable[str] | Mapping[str, str | Sql] | None
"""A topic, a list of topics, or topics with their expressions."""


class Subscription(NamedTuple):
    """A topic, by its name on the wire, and an expression; `tags` None means all
    messages.
    """

    topic: str
    expression: str = ALL
    kind: str = "TAG"
    version: int = 0
    tags: frozenset[str] | None = None

    def to_wire(self) -> SubscriptionData:
        """Return the entry of the subscription in heartbeats."""
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
    topics: "Topics",
) -> "dict[str, str | Sql]":
    """Return topics with their expressions; ConfigError if one is invalid."""
    if topics is None:
        return {}
    if isinstance(topics, Mapping):
        found = dict(topics)
    elif isinstance(topics, Iterable):
        names = [topics] if isinstance(topics, str) else list(topics)
        found = dict.fromkeys(names, ALL)
    else:
        raise ConfigError(f"topics: {topics!r} is not a topic, a list or a mapping")
    for topic, expression in found.items():
        if not isinstance(topic, str) or not isinstance(expression, str):
            raise ConfigError(f"topics: {topic!r}: {expression!r} is not two texts")
        try:
            validate_topic(topic)
        except RequestRejected as error:
            raise ConfigError(f"topics: {topic!r}: {error.remark}") from error
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
