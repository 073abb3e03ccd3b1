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
        doc="maximum number of subscriptions: pairs of one client and one lite topic",
    )
    max_client_events: int = option(
        100,
        key="maxClientEventCount",
        low=1,
        high=10_000,
        dynamic=True,
        doc=(
            "maximum number of lite topics with waiting messages that the broker "
            "remembers for one client; lite.sub.client.max.event.cnt of its group "
            "overrides it"
        ),
    )
    event_check_ms: int = option(
        10_000,
        key="liteEventCheckInterval",
        low=100,
        high=_DAY_MS,
        dynamic=True,
        doc=(
            "pause between two searches for clients that do not pop; their events go "
            "to other clients"
        ),
    )
    full_dispatch_delay_ms: int = option(
        10_000,
        key="liteEventFullDispatchDelayTime",
        low=50,
        high=_DAY_MS,
        dynamic=True,
        doc=(
            "delay before a check of all lite topics, after a client's set of events "
            "became full"
        ),
    )
    wildcard_dispatch_delay_ms: int = option(
        10_000,
        key="liteEventFullDispatchDelayTimeForWildcardGroup",
        low=50,
        high=_DAY_MS,
        dynamic=True,
        doc="like liteEventFullDispatchDelayTime, for a group with lite.sub.wildcard",
    )
    subscription_check_ms: int = option(
        120_000,
        key="liteSubscriptionCheckInterval",
        low=100,
        high=_DAY_MS,
        dynamic=True,
        doc="pause between two searches for silent clients with subscriptions",
    )
    subscription_timeout_ms: int = option(
        180_000,
        key="liteSubscriptionCheckTimeoutMills",
        low=100,
        high=_DAY_MS,
        dynamic=True,
        doc="time after which the broker removes a client that sends no subscriptions",
    )
    expiration_check_ms: int = option(
        120_000,
        key="liteTtlCheckInterval",
        low=100,
        high=_DAY_MS,
        dynamic=True,
        doc="pause between two deletions of expired lite topics",
    )
    least_expiration_ms: int = option(
        900_000,
        key="minLiteTTl",
        low=0,
        high=_DAY_MS,
        dynamic=True,
        doc=(
            "minimum age of the last message of a lite topic before the topic expires; "
            "the broker must have run for this time, too"
        ),
    )
