"""NamesrvConfig: every key of the name server, with Java's names and defaults.

Where it listens is apart: a broker's own name server reads what it does from the
broker's file, where `listenPort` is the broker's.
"""

import os
from pathlib import Path

from rmq.config import DAY_MS, Configuration, option

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
        doc="file that request 318 rewrites; the one given with -c if it is empty",
    )
    scan_interval_ms: int = option(
        5_000,
        key="scanNotActiveBrokerInterval",
        low=100,
        high=DAY_MS,
        dynamic=True,
        doc="pause between looks for brokers that are gone",
    )
    ignore_bad_stored_values: bool = option(
        False,
        key="rmq.ignoreBadStoredValues",
        doc="start with the default where the file has an impossible value",
    )
    need_wait_for_service: bool = option(
        False,
        key="needWaitForService",
        dynamic=True,
        doc="answer no route until brokers had the time to register",
    )
    wait_seconds_for_service: int = option(
        45,
        key="waitSecondsForService",
        low=0,
        high=3_600,
        dynamic=True,
        doc="seconds after the start for which needWaitForService waits",
    )
    order_message_enable: bool = option(
        False,
        key="orderMessageEnable",
        dynamic=True,
        doc="put orderTopicConf into route answers",
    )
    return_order_topic_config: bool = option(
        True,
        key="returnOrderTopicConfigToBroker",
        dynamic=True,
        doc="tell brokers the order configuration when they register",
    )
    delete_topic_with_broker_registration: bool = option(
        False,
        key="deleteTopicWithBrokerRegistration",
        dynamic=True,
        doc="forget topics that a broker no longer registers",
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
        doc="show the slave with the least id as master of a group that has none",
    )
    notify_min_broker_id_changed: bool = option(
        False,
        key="notifyMinBrokerIdChanged",
        dynamic=True,
        doc="tell the members of a group when another one has the least id",
    )

    @property
    def kv_path(self) -> Path:
        """The file of the key-value configuration."""
        return Path(self.kv_config_path)


class NamesrvListenConfig(Configuration):
    """Keys of Java's `NettyServerConfig`, of a name server that runs alone."""

    listen_port: int = option(
        9876, key="listenPort", low=0, high=65535, doc="port; 0 takes any free one"
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
        doc="a connection silent for this long is closed",
    )
