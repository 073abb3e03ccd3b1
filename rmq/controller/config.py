"""ControllerConfig: the keys of a controller.

A key that means the same as a key of Java's `ControllerConfig` has the same name.
Java's keys of Raft (`controllerDLeger…`, `jRaft…`) have no meaning here.
"""

import enum
import importlib.util
import os
from pathlib import Path
from urllib.parse import urlsplit

from rmq.access.networks import LOOPBACK, Network, parse_networks
from rmq.config.option import DAY_MS, Configuration, MetricsExporter, option
from rmq.core.address import is_address
from rmq.core.errors import BadValue, ConfigError
from rmq.core.extras import install_command

_HOME = os.path.join(os.path.expanduser("~"), "rmqController")
_ANY = ("0.0.0.0", "::", "")


class EngineKind(enum.Enum):
    """Values of `rmq.controllerEngine`."""

    etcd = "etcd"
    file = "file"


class ControllerConfig(Configuration):
    """Known in Java as `ControllerConfig`."""

    bind_address: str = option(
        "127.0.0.1",
        key="bindAddress",
        doc="address to listen on; with a configuration file the default is 0.0.0.0",
    )
    controller_port: int = option(
        9878,
        key="rmq.controller.listenPort",
        low=0,
        high=65535,
        doc="port of the controller; 0 takes any free port",
    )
    idle_timeout_s: int = option(
        120,
        key="serverChannelMaxIdleTimeSeconds",
        low=1,
        doc="time without traffic after which a connection is closed",
    )
    controller_address: str = option(
        "",
        key="rmq.controller.address",
        doc="host:port at which brokers, tools and other controllers reach this "
        "controller; needed if it listens on all addresses",
    )
    controller_group: str = option(
        "rmq-controller",
        key="rmq.controllerGroup",
        doc=(
            "name of the group of controllers that share one state; in etcd their keys "
            "begin with `/rmq/` and this name"
        ),
    )
    controller_engine: EngineKind = option(
        EngineKind.file,
        key="rmq.controllerEngine",
        doc=(
            "place of the controller's state: `etcd`, or `file` for a single "
            "controller, which is not highly available"
        ),
    )
    controller_store_path: str = option(
        _HOME,
        key="controllerStorePath",
        path=True,
        doc="directory of the state, for the engine `file`",
    )
    etcd_endpoints: str = option(
        "http://127.0.0.1:2379",
        key="rmq.etcdEndpoints",
        doc="addresses of etcd's members, separated by commas, `http://` or `https://`",
    )
    etcd_user: str = option("", key="rmq.etcdUser", doc="user of etcd, if it has users")
    etcd_password: str = option(
        "", key="rmq.etcdPassword", secret=True, doc="password of rmq.etcdUser"
    )
    etcd_ca_file: str = option(
        "",
        key="rmq.etcdCaFile",
        path=True,
        doc=(
            "CA certificates that signed etcd's certificates; if empty, the system's "
            "CA certificates"
        ),
    )
    etcd_cert_file: str = option(
        "",
        key="rmq.etcdCertFile",
        path=True,
        doc="certificate of the controller, if etcd requires one",
    )
    etcd_key_file: str = option(
        "",
        key="rmq.etcdKeyFile",
        path=True,
        doc="key of rmq.etcdCertFile; if empty, the key is in the same file",
    )
    scan_inactive_master_interval_ms: int = option(
        1_000,
        key="scanInactiveMasterInterval",
        low=100,
        high=DAY_MS,
        dynamic=True,
        doc="pause between searches for groups whose master is dead (Java: 5000)",
    )
    elects_unclean: bool = option(
        False,
        key="enableElectUncleanMaster",
        dynamic=True,
        doc=(
            "let a broker outside of the sync-state set become master if no broker of "
            "the set is alive; messages that this broker lacks are lost"
        ),
    )
    notifies_brokers: bool = option(
        True,
        key="notifyBrokerRoleChanged",
        dynamic=True,
        doc=(
            "notify the members of a group of a new master; false: the members ask, "
            "and learn of a new master within 5 s"
        ),
    )
    config_store_path: str = option(
        "",
        key="configStorePath",
        path=True,
        doc="file that updateControllerConfig (request 1009) rewrites; if empty, the "
        "file given with -c",
    )
    controller_admin_from: str = option(
        "",
        key="rmq.controller.adminFrom",
        doc=(
            "addresses and networks, separated by commas, that may change the "
            "controller and its groups while access control is off; loopback may "
            "always do so"
        ),
    )
    controller_brokers_from: str = option(
        "",
        key="rmq.controller.brokersFrom",
        doc=(
            "addresses and networks, separated by commas. With access control: brokers "
            "there need no signature. Without: brokers there may send requests in the "
            "name of a broker whose heartbeats come from another address"
        ),
    )
    metrics_exporter: MetricsExporter = option(
        MetricsExporter.DISABLE,
        key="metricsExporterType",
        doc=(
            "PROM: serve metrics and health over HTTP; OTLP_GRPC, OTLP_HTTP: send "
            "metrics to a collector, needs the extra otlp; LOG: write metrics to the "
            "log; DISABLE: no metrics"
        ),
    )
    metrics_port: int = option(
        5557,
        key="metricsPromExporterPort",
        low=0,
        high=65535,
        doc=(
            "port of /metrics, /healthz and /readyz; 0 takes any free port; a broker "
            "on the same host has the same default"
        ),
    )
    metrics_host: str = option(
        "127.0.0.1",
        key="metricsPromExporterHost",
        doc="address for metricsPromExporterPort, which has no authentication",
    )
    cluster: str = option(
        "DefaultCluster",
        key="brokerClusterName",
        doc="with access control: name of the cluster on which users need rights",
    )

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        self.admin_networks()
        self.broker_networks()
        if (
            not self.controller_group
            or not self.controller_group.isprintable()
            or "/" in self.controller_group
        ):
            raise BadValue(
                "rmq.controllerGroup", self.controller_group, "write a name without /"
            )
        if self.controller_address and not is_address(self.controller_address):
            raise BadValue(
                "rmq.controller.address", self.controller_address, "write host:port"
            )
        if self.controller_engine is EngineKind.etcd:
            self.etcd_addresses()
            if importlib.util.find_spec("httpx") is None:
                # no key: the default would be another engine with other data
                raise ConfigError(
                    "rmq.controllerEngine=etcd needs httpx: "
                    f"{install_command('controller')}"
                )

    def etcd_addresses(self) -> tuple[str, ...]:
        """Return the addresses of etcd; ConfigError if one is no URL."""
        texts = [each.strip().rstrip("/") for each in self.etcd_endpoints.split(",")]
        for text in texts:
            parts = urlsplit(text)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigError(
                    f"rmq.etcdEndpoints: {text} is no address like http://host:2379",
                    "rmq.etcdEndpoints",
                )
        return tuple(texts)

    def reachable_at(self, port: int) -> str:
        """Return the address for other hosts; ConfigError if it cannot be known."""
        if self.controller_address:
            return self.controller_address
        if self.bind_address in _ANY:
            raise ConfigError(
                "the controller listens on all addresses: set rmq.controller.address "
                "to the host:port at which brokers and other controllers reach it"
            )
        return f"{self.bind_address}:{port}"

    def admin_networks(self) -> tuple[Network, ...]:
        """Return the networks that may send changes without access control."""
        return LOOPBACK + parse_networks(
            "rmq.controller.adminFrom", self.controller_admin_from
        )

    def broker_networks(self) -> tuple[Network, ...]:
        """Return the networks of trusted brokers."""
        return parse_networks(
            "rmq.controller.brokersFrom", self.controller_brokers_from
        )

    @property
    def folder(self) -> Path:
        """The folder of the engine `file`."""
        return Path(self.controller_store_path)
