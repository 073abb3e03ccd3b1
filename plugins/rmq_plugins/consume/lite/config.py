"""LiteConfig: the keys of this plugin, with Java's names and defaults."""

from rmq.plugin import Configuration, option

_DAY_MS = 86_400_000


class LiteConfig(Configuration):
    """Intervals and limits of lite topics, subscriptions and events."""

    max_subscriptions: int = option(
        100_000,
        key="maxLiteSubscriptionCount",
        low=0,
        high=10_000_000,
        dynamic=True,
        doc="pairs of a client and a lite topic in its subscription",
    )
    max_client_events: int = option(
        100,
        key="maxClientEventCount",
        low=1,
        high=10_000,
        dynamic=True,
        doc="lite topics with messages that wait for one client, unless its group has "
        "lite.sub.client.max.event.cnt",
    )
    event_check_ms: int = option(
        10_000,
        key="liteEventCheckInterval",
        low=100,
        high=_DAY_MS,
        dynamic=True,
        doc="how often events of clients that do not pop go to other clients",
    )
    full_dispatch_delay_ms: int = option(
        10_000,
        key="liteEventFullDispatchDelayTime",
        low=50,
        high=_DAY_MS,
        dynamic=True,
        doc="delay from a full set of events to a check of all lite topics",
    )
    wildcard_dispatch_delay_ms: int = option(
        10_000,
        key="liteEventFullDispatchDelayTimeForWildcardGroup",
        low=50,
        high=_DAY_MS,
        dynamic=True,
        doc="the same for a group with lite.sub.wildcard",
    )
    subscription_check_ms: int = option(
        120_000,
        key="liteSubscriptionCheckInterval",
        low=100,
        high=_DAY_MS,
        dynamic=True,
        doc="how often the broker looks for silent clients with subscriptions",
    )
    subscription_timeout_ms: int = option(
        180_000,
        key="liteSubscriptionCheckTimeoutMills",
        low=100,
        high=_DAY_MS,
        dynamic=True,
        doc="the broker removes a client that sends no subscriptions for so long",
    )
    expiration_check_ms: int = option(
        120_000,
        key="liteTtlCheckInterval",
        low=100,
        high=_DAY_MS,
        dynamic=True,
        doc="how often the broker deletes expired lite topics",
    )
    least_expiration_ms: int = option(
        900_000,
        key="minLiteTTl",
        low=0,
        high=_DAY_MS,
        dynamic=True,
        doc="no lite topic expires before its last message is so old, and none before "
        "the broker has run for so long",
    )
