"""ExportConfig: keys of the metrics that a broker or controller exports by itself."""

from rmq.config.option import DAY_MS, Configuration, option
from rmq.core.errors import BadValue

MAX_HEADERS = 32


class ExportConfig(Configuration):
    """A part of Java's `BrokerConfig` and `ControllerConfig`."""

    target: str = option(
        "",
        key="metricsGrpcExporterTarget",
        doc=(
            "address to which OTLP_GRPC and OTLP_HTTP send the metrics: "
            "http://HOST:4317, or http://HOST:4318/v1/metrics; an address without "
            "http:// means https"
        ),
    )
    headers: str = option(
        "",
        key="metricsGrpcExporterHeader",
        secret=True,
        doc="headers of the requests of OTLP_GRPC and OTLP_HTTP, as name:value, "
        "separated by ,",
    )
    timeout_ms: int = option(
        3_000,
        key="metricGrpcExporterTimeOutInMills",
        low=1,
        high=DAY_MS,
        doc="maximum time of one request of OTLP_GRPC or OTLP_HTTP, with its "
        "repetitions",
    )
    interval_ms: int = option(
        60_000,
        key="metricGrpcExporterIntervalInMills",
        low=100,
        high=DAY_MS,
        doc="pause between two requests of OTLP_GRPC or OTLP_HTTP",
    )
    log_interval_ms: int = option(
        10_000,
        key="metricLoggingExporterIntervalInMills",
        low=100,
        high=DAY_MS,
        doc="with metricsExporterType LOG: pause between two copies of all metrics in "
        "the broker's log",
    )
    is_delta: bool = option(
        False,
        key="metricsInDelta",
        doc=(
            "OTLP_GRPC, OTLP_HTTP and LOG export the growth of counters since the last "
            "export, not their values"
        ),
    )

    def __post_init__(self) -> None:
        """Refuse headers that cannot be sent."""
        self.header_table()

    def header_table(self) -> dict[str, str]:
        """Return the headers by name."""
        found: dict[str, str] = {}
        for part in filter(None, self.headers.split(",")):
            name, colon, value = part.partition(":")
            text = name + value
            if not (colon and name and text.isascii() and text.isprintable()):
                raise BadValue(
                    "metricsGrpcExporterHeader", "…", "write name:value,name:value"
                )
            found[name.strip()] = value.strip()
        if len(found) > MAX_HEADERS:
            raise BadValue(
                "metricsGrpcExporterHeader", "…", f"at most {MAX_HEADERS} headers"
            )
        return found

    @property
    def url(self) -> str:
        """The target with its scheme."""
        return self.target if "://" in self.target else f"https://{self.target}"
