"""Rules of registration: which registrations are accepted, and which data they change.

Topics come from the master, or from the slave with the smallest id if its registration
has the flag of acting masters. The larger state version wins between two addresses for
one id, as in Java's `RouteInfoManager`. But an address and an id belong to the host
that registered them until the registration is removed or expires, unless the caller is
trusted. In Java any host can take over a broker's name by a larger state version.
"""

from collections.abc import Iterator

from rmq.core.errors import RequestRejected
from rmq.namesrv.registration import (
    MASTER_ID,
    BrokerGroup,
    Caller,
    LiveBroker,
    Registration,
)
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import ResponseCode

TOPICS_OF_STEP = 200
"""Topics that are checked or stored in one step, 0.4 ms; other tasks run between steps.
"""

MAX_TOPIC_LENGTH = 255
MAX_QUEUES = 65_536
"""Maximum number of queues of a topic on a broker, as in the broker: a client has an
object for each.
"""

MAX_TIMEOUT_MS = 600_000
"""Maximum time after which a silent broker expires; Java's brokers ask for 10 s to 120
s.
"""


def check_plausible(wanted: Registration) -> Iterator[None]:
    """Refuse a registration that would harm clients or other brokers; in steps."""
    if wanted.broker_id < MASTER_ID:
        raise rejection_of(f"a broker's id must be 0 or more, not {wanted.broker_id}")
    for number, (topic, config) in enumerate(wanted.topics.items(), 1):
        if number % TOPICS_OF_STEP == 0:
            yield
        if len(topic) > MAX_TOPIC_LENGTH:
            raise rejection_of(f"a topic of {len(topic)} characters is too long")
        counts = config.read_queue_nums, config.write_queue_nums
        if min(counts) < 0 or max(counts) > MAX_QUEUES:
            raise rejection_of(
                f"topic {topic} has {counts[0]} and {counts[1]} queues, allowed are 0 "
                f"to {MAX_QUEUES}"
            )


def free_topics(topics: dict[str, TopicConfig]) -> Iterator[None]:
    """Free the memory of a registration's topics in steps: 20,000 at once take 5 ms."""
    while topics:
        for _ in range(min(TOPICS_OF_STEP, len(topics))):
            topics.popitem()
        yield


def timeout_of(wanted: Registration) -> int:
    """Return the time after which the broker expires if it is silent, in ms."""
    return min(max(wanted.timeout_ms, 0), MAX_TIMEOUT_MS)


def check_owner(
    group: BrokerGroup, live: LiveBroker | None, wanted: Registration
) -> None:
    """Refuse an id or an address that another host has registered.

    `group` is the current group of the name, `live` the entry of the address.
    """
    holder = group.addresses.get(wanted.broker_id)
    claimed = [live.host] if live is not None else []
    claimed += [group.hosts[a] for a in (holder, wanted.address) if a in group.hosts]
    check_hosts(claimed, wanted.caller, wanted.broker_name)


def check_hosts(claimed: list[str], caller: Caller, broker_name: str) -> None:
    """Refuse a caller who sends for a broker that another host has registered."""
    strangers = [host for host in claimed if host != caller.host]
    if strangers and not caller.is_trusted:
        raise RequestRejected(
            ResponseCode.NO_PERMISSION,
            f"broker {broker_name} is registered by {strangers[0]} until "
            f"{strangers[0]} unregisters or expires; to let {caller.host} replace it "
            f"at once, add {caller.host} to rmq.namesrv.brokersFrom of the name server",
        )


def is_outranked(holder: LiveBroker | None, wanted: Registration) -> bool:
    """Whether another address with a newer state has the id."""
    if holder is None:
        return False
    return holder.data_version.state_version > wanted.data_version.state_version


def brings_topics(group: BrokerGroup, wanted: Registration) -> bool:
    """Whether a registration has the topics of its group."""
    if wanted.broker_id == MASTER_ID:
        return True
    return (
        wanted.enable_acting_master is not None and wanted.broker_id == group.least_id
    )


def speaks_for_group(group: BrokerGroup, wanted: Registration) -> bool:
    """Whether the registration sets cluster, zone and acting master of its group.

    If members are on several hosts, only the member with the smallest id sets them.
    """
    is_alone = set(group.hosts.values()) == {wanted.caller.host}
    return is_alone or wanted.caller.is_trusted or wanted.broker_id == group.least_id


def rejection_of(reason: str) -> RequestRejected:
    """Return the error for a registration that is not accepted."""
    return RequestRejected(ResponseCode.SYSTEM_ERROR, reason)
