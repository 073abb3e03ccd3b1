"""The options of each kind of process, without the options of plugins."""

from typing import Final

from rmq.access.config import AuthConfig
from rmq.cluster.config import ReplicationConfig
from rmq.config.broker import BrokerConfig
from rmq.console.config import ConsoleConfig
from rmq.controller.config import ControllerConfig
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.observe.config import ExportConfig
from rmq.remoting.tls import TlsConfig
from rmq.store.config import StoreConfig

BROKER_OPTIONS: Final[tuple[type, ...]] = (
    BrokerConfig,
    StoreConfig,
    ReplicationConfig,
    ConsoleConfig,
    ExportConfig,
    TlsConfig,
    NamesrvConfig,
)
CONTROLLER_OPTIONS: Final[tuple[type, ...]] = (
    ControllerConfig,
    ExportConfig,
    TlsConfig,
    AuthConfig,
)
NAME_SERVER_OPTIONS: Final[tuple[type, ...]] = (
    NamesrvConfig,
    NamesrvListenConfig,
    ControllerConfig,
    ExportConfig,
    TlsConfig,
    AuthConfig,
)
