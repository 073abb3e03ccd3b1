"""ContainerConfig: the keys of a container's own file.

Each broker has its own file, with the keys of a broker.
"""

from typing import Final

from rmq.access.config import AuthConfig
from rmq.config.option import Configuration, MetricsExporter, option
from rmq.core.errors import BadValue
from rmq.namesrv.config import NamesrvConfig
from rmq.remoting.tls import TlsConfig


class ContainerConfig(Configuration):
    """Known in Java as `BrokerContainerConfig`."""

    broker_config_paths: str = option(
        "",
        key="brokerConfigPaths",
        doc="files of the brokers to start, separated by colons",
    )
    listen_port: int = option(
        10811,
        key="listenPort",
        low=0,
        high=65535,
        doc="port for addBroker and removeBroker; 0 takes any free port",
    )
    bind_address: str = option(
        "127.0.0.1",
        key="bindAddress",
        doc="address to listen on; with a configuration file the default is 0.0.0.0",
    )
    namesrv_addr: str = option(
        "",
        key="namesrvAddr",
        doc=(
            "name servers of brokers whose files name no name server; if empty, the "
            "container starts its own"
        ),
    )
    embedded_namesrv_port: int = option(
        9876,
        key="rmq.namesrv.listenPort",
        low=0,
        high=65535,
        doc="port of the container's own name server; 0 takes any free port",
    )
    admin_from: str = option(
        "",
        key="rmq.container.adminFrom",
        doc=(
            "addresses and networks, separated by commas, that may add and remove "
            "brokers; loopback may always do so"
        ),
    )
    stop_timeout_s: int = option(
        90,
        key="rmq.container.stopTimeoutSeconds",
        low=1,
        high=3_600,
        doc="time that a broker has for a clean shutdown before the container kills it",
    )
    metrics_exporter: MetricsExporter = option(
        MetricsExporter.DISABLE,
        key="metricsExporterType",
        doc=(
            "PROM: serve metrics and health of all brokers on one port; DISABLE: no "
            "metrics"
        ),
    )
    metrics_port: int = option(
        5557,
        key="metricsPromExporterPort",
        low=0,
        high=65535,
        doc="port of /metrics, /healthz and /readyz; 0 takes any free port",
    )
    metrics_host: str = option(
        "127.0.0.1",
        key="metricsPromExporterHost",
        doc="address for metricsPromExporterPort, which has no authentication",
    )

    def __post_init__(self) -> None:
        """Refuse an exporter that only a broker has."""
        if self.metrics_exporter.is_regular:
            raise BadValue(
                "metricsExporterType",
                self.metrics_exporter.name,
                "a container has PROM only; set this key in the files of its brokers",
            )

    @property
    def broker_paths(self) -> list[str]:
        """The files of the brokers."""
        return [path for path in self.broker_config_paths.split(":") if path.strip()]


CONTAINER_OPTIONS: Final[tuple[type, ...]] = (
    ContainerConfig,
    NamesrvConfig,
    TlsConfig,
    AuthConfig,
)
"""The options of a container's own process; its name server may have users."""
