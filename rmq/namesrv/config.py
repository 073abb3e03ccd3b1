"""NamesrvConfig: every key of the name server, with Java's names and defaults.

The listening address is in a separate class. An embedded name server reads the other
keys from the broker's file, and `listenPort` there belongs to the broker.
"""

import os
from pathlib import Path

from rmq.access.networks import LOOPBACK, Network, parse_networks
from rmq.config.option import DAY_MS, Configuration, option

_HOME = os.path.join(os.path.expanduser("~"), "namesrv")


class NamesrvConfig(Configuration):
    """Known in Java as `NamesrvConfig`."""

    kv_config_path: str = option(
        os.path.join(_HOME, "kvConfig.json"),
        key="kvConfigPath",
        path=True,
        doc="file of the key-value configuration",
    )
    config_store_path: str = option(
        "",
        key="configStorePath",
        path=True,
        doc="file that updateNamesrvConfig (request 318) rewrites; if empty, the file "
        "given with -c",
    )
    scan_interval_ms: int = option(
        5_000,
        key="scanNotActiveBrokerInterval",
        low=100,
        high=DAY_MS,
        dynamic=True,
        doc="pause between searches for expired brokers",
    )
    ignore_bad_stored_values: bool = option(
        False,
        key="rmq.ignoreBadStoredValues",
        doc="replace an invalid value in the file by the default of its key",
    )
    need_wait_for_service: bool = option(
        False,
        key="needWaitForService",
        dynamic=True,
        doc="answer no route until waitSecondsForService seconds after the start",
    )
    wait_seconds_for_service: int = option(
        45,
        key="waitSecondsForService",
        low=0,
        high=3_600,
        dynamic=True,
        doc=(
            "with needWaitForService: seconds after the start in which brokers "
            "register, and clients get no routes"
        ),
    )
    order_message_enable: bool = option(
        False,
        key="orderMessageEnable",
        dynamic=True,
        doc="put the order configuration of a topic (orderTopicConf) into the answer "
        "to a request for its route",
    )
    return_order_topic_config: bool = option(
        True,
        key="returnOrderTopicConfigToBroker",
        dynamic=True,
        doc="send brokers the order configuration when they register",
    )
    delete_topic_with_broker_registration: bool = option(
        False,
        key="deleteTopicWithBrokerRegistration",
        dynamic=True,
        doc="remove topics that a broker no longer registers",
    )
    enable_all_topic_list: bool = option(
        True,
        key="enableAllTopicList",
        dynamic=True,
        doc="answer the list of all topics",
    )
    enable_topic_list: bool = option(
        True,
        key="enableTopicList",
        dynamic=True,
        doc="answer the lists of topics by cluster and by unit",
    )
    support_acting_master: bool = option(
        False,
        key="supportActingMaster",
        dynamic=True,
        doc="show the slave with the smallest id as master of a group without a master",
    )
    notify_min_broker_id_changed: bool = option(
        False,
        key="notifyMinBrokerIdChanged",
        dynamic=True,
        doc="notify the members of a group when another member gets the smallest id",
    )
    enable_controller: bool = option(
        False,
        key="enableControllerInNamesrv",
        doc=(
            "run a controller in the process of `rmq namesrv`; its keys are in the "
            "same file"
        ),
    )

    admin_from: str = option(
        "",
        key="rmq.namesrv.adminFrom",
        doc=(
            "addresses and networks, separated by commas, that may send changes to the "
            "name server while access control is off; loopback may always do so"
        ),
    )
    brokers_from: str = option(
        "",
        key="rmq.namesrv.brokersFrom",
        doc=(
            "addresses and networks, separated by commas. With access control: brokers "
            "there need no signature. Without: brokers there may replace a broker that "
            "is registered from another address"
        ),
    )
    cluster: str = option(
        "DefaultCluster",
        key="brokerClusterName",
        doc="with access control: name of the cluster on which users need rights",
    )

    def __post_init__(self) -> None:
        """Refuse values that are no networks."""
        self.admin_networks()
        self.broker_networks()

    def admin_networks(self) -> tuple[Network, ...]:
        """Return the networks that may send changes without access control."""
        return LOOPBACK + parse_networks("rmq.namesrv.adminFrom", self.admin_from)

    def broker_networks(self) -> tuple[Network, ...]:
        """Return the networks of trusted brokers."""
        return parse_networks("rmq.namesrv.brokersFrom", self.brokers_from)

    @property
    def kv_path(self) -> Path:
        """The file of the key-value configuration."""
        return Path(self.kv_config_path)


class NamesrvListenConfig(Configuration):
    """Keys of Java's `NettyServerConfig`, for a name server that is not inside a
    broker.
    """

    listen_port: int = option(
        9876,
        key="listenPort",
        low=0,
        high=65535,
        doc="port of the name server; 0 takes any free port",
    )
    bind_address: str = option(
        "127.0.0.1",
        key="bindAddress",
        doc="address to listen on; with a configuration file the default is 0.0.0.0",
    )
    idle_timeout_s: int = option(
        120,
        key="serverChannelMaxIdleTimeSeconds",
        low=1,
        doc="time without traffic after which a connection is closed",
    )
