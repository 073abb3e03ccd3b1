"""Bodies of the name server: routes, clusters, members of a broker group.

Clients in other languages determine the form of these texts. Integer names are quoted,
because some clients read only standard JSON. False and null are left out, because
pyrocketmq reads a route as a Python literal. The text has no blanks, because the Go
client reads the addresses without a JSON parser.
"""

from typing import Any

from msgspec import field

from rmq.protocol.bodies import Body
from rmq.protocol.headers import I32


class BrokerData(Body, kw_only=True):
    """The addresses of one broker group, by broker id; 0 is the master."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[int, str] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool | None = None

    def __post_init__(self) -> None:
        """Replace false by None: None has the same meaning, and some clients cannot
        read false.
        """
        if not self.enable_acting_master:
            self.enable_acting_master = None


class QueueData(Body, kw_only=True, gc=False):
    """The queues of a topic on one broker group."""

    broker_name: str | None = None
    read_queue_nums: I32 = 0
    write_queue_nums: I32 = 0
    perm: I32 = 0
    topic_sys_flag: I32 = 0


class TopicRouteData(Body, kw_only=True):
    """Answer to 105: the route of a topic, with the mappings of a static topic as
    brokers sent them.
    """

    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, Any] | None = None
    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)


class ClusterInfo(Body, kw_only=True):
    """Answer to 106: all brokers, and the names of the brokers of each cluster."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


class BrokerMemberGroup(Body, kw_only=True):
    """The brokers with one name: a master and its slaves."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[int, str] = field(default_factory=dict)


class GetBrokerMemberGroupResponseBody(Body, kw_only=True):
    """Answer to 901."""

    broker_member_group: BrokerMemberGroup | None = None
