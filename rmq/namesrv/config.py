"""NamesrvConfig: every key of the name server, with Java's names and defaults."""

import os
from dataclasses import dataclass
from pathlib import Path

from rmq.config import option

_HOME = os.path.join(os.path.expanduser("~"), "namesrv")


@dataclass(frozen=True, slots=True)
class NamesrvConfig:
    """Known in Java as `NamesrvConfig`, with the server's keys beside it."""

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
    kv_config_path: str = option(
        os.path.join(_HOME, "kvConfig.json"),
        key="kvConfigPath",
        path=True,
        doc="file of the key-value configuration",
    )
    scan_interval_ms: int = option(
        5_000,
        key="scanNotActiveBrokerInterval",
        low=100,
        doc="pause between looks for brokers that are gone",
    )
    order_message_enable: bool = option(
        False, key="orderMessageEnable", doc="put orderTopicConf into route answers"
    )
    return_order_topic_config: bool = option(
        True,
        key="returnOrderTopicConfigToBroker",
        doc="tell brokers the order configuration when they register",
    )
    delete_topic_with_broker_registration: bool = option(
        False,
        key="deleteTopicWithBrokerRegistration",
        doc="forget topics that a broker no longer registers",
    )
    enable_all_topic_list: bool = option(
        True, key="enableAllTopicList", doc="answer the list of all topics"
    )

    @property
    def kv_path(self) -> Path:
        """The file of the key-value configuration."""
        return Path(self.kv_config_path)
