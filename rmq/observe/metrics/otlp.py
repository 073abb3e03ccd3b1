"""Metrics in the form of OTLP: as JSON for a log, and for OpenTelemetry's exporters.

The JSON is one `ResourceMetrics` in a line, as Java's `OtlpJsonLoggingMetricExporter`
writes it, but with one metric: lines stay short. OpenTelemetry's exporters for OTLP
over gRPC and HTTP are separate libraries, which are imported on use.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from rmq.core.errors import ConfigError
from rmq.core.extras import install_command
from rmq.observe.metrics.points import HistogramPoint, Metric, Point

DELTA, CUMULATIVE = 1, 2
"""OTLP's numbers of aggregation temporality."""

_MODULES: Final = {
    "OTLP_GRPC": "opentelemetry.exporter.otlp.proto.grpc.metric_exporter",
    "OTLP_HTTP": "opentelemetry.exporter.otlp.proto.http.metric_exporter",
}


class Span(NamedTuple):
    """The time span of points, and whether the points have only the growth in this
    span.
    """

    start_ns: int
    end_ns: int
    is_delta: bool


Scope = tuple[str, Sequence[Metric]]
"""The name of a meter, and its metrics."""


def json_lines(scopes: Sequence[Scope], span: Span) -> Iterator[str]:
    """Yield one line for each metric."""
    for scope, metrics in scopes:
        for metric in metrics:
            found = {
                "resource": {"attributes": []},
                "scopeMetrics": [
                    {
                        "scope": {"name": scope, "attributes": []},
                        "metrics": [_metric_of(metric, span)],
                    }
                ],
            }
            yield msgspec.json.encode(found).decode()


def _metric_of(metric: Metric, span: Span) -> dict[str, Any]:
    points = [_point_of(each, span) for each in metric.points]
    found: dict[str, Any] = {
        "name": metric.name,
        "description": metric.text,
        "unit": metric.unit,
    }
    temporality = DELTA if span.is_delta else CUMULATIVE
    if metric.kind == "gauge":
        found["gauge"] = {"dataPoints": points}
    elif metric.kind == "counter":
        found["sum"] = {
            "dataPoints": points,
            "aggregationTemporality": temporality,
            "isMonotonic": True,
        }
    else:
        found["histogram"] = {
            "dataPoints": points,
            "aggregationTemporality": temporality,
        }
    return found


def _point_of(point: Point | HistogramPoint, span: Span) -> dict[str, Any]:
    """Return a point; JSON of protocol buffers has numbers of 64 bits as texts."""
    found: dict[str, Any] = {
        "attributes": [
            {"key": key, "value": {"stringValue": value}}
            for key, value in point.labels.items()
        ],
        "startTimeUnixNano": str(span.start_ns),
        "timeUnixNano": str(span.end_ns),
    }
    if isinstance(point, HistogramPoint):
        found["count"] = str(sum(point.counts))
        found["sum"] = float(point.total)
        found["bucketCounts"] = [str(count) for count in point.counts]
        found["explicitBounds"] = [float(bound) for bound in point.bounds]
    elif float(point.value).is_integer():
        found["asInt"] = str(int(point.value))
    else:
        found["asDouble"] = point.value
    return found


class Exporter(Protocol):
    """The part of OpenTelemetry's exporters that rmq uses; both methods block."""

    def export(self, metrics_data: Any, timeout_millis: float = ...) -> Any:  # noqa: ANN401 - foreign
        """Send the metrics; the result's `name` is SUCCESS or FAILURE."""

    def shutdown(self, timeout_millis: float = ...) -> None:
        """End the connection."""


def make_exporter(
    kind: str, target: str, headers: Mapping[str, str], timeout_ms: int
) -> Exporter:
    """Return OpenTelemetry's exporter; ConfigError if it is not installed."""
    try:
        module = importlib.import_module(_MODULES[kind])
    except ImportError as error:
        raise ConfigError(
            f"metricsExporterType={kind} needs OpenTelemetry's exporter: "
            f"{install_command('otlp')}"
        ) from error
    options: dict[str, Any] = {
        "endpoint": target,
        "headers": {name.lower(): value for name, value in headers.items()},
        "timeout": timeout_ms / 1_000,
    }
    if kind == "OTLP_GRPC":
        options["insecure"] = target.startswith("http://")
    exporter: Exporter = module.OTLPMetricExporter(**options)
    return exporter


def sdk_metrics(scopes: Sequence[Scope], span: Span) -> Any:  # noqa: ANN401 - foreign
    """Return `MetricsData` of OpenTelemetry's SDK, for an exporter."""
    # imported on use: they come with the exporter
    from opentelemetry.sdk.metrics import export
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    found = [
        export.ScopeMetrics(
            scope=InstrumentationScope(scope),
            metrics=[_sdk_metric(export, metric, span) for metric in metrics],
            schema_url="",
        )
        for scope, metrics in scopes
    ]
    resource = export.ResourceMetrics(
        resource=Resource.get_empty(), scope_metrics=found, schema_url=""
    )
    return export.MetricsData(resource_metrics=[resource])


def _sdk_metric(export: Any, metric: Metric, span: Span) -> Any:  # noqa: ANN401 - foreign
    points = [_sdk_point(export, each, span) for each in metric.points]
    temporality = export.AggregationTemporality(DELTA if span.is_delta else CUMULATIVE)
    if metric.kind == "gauge":
        data = export.Gauge(data_points=points)
    elif metric.kind == "counter":
        data = export.Sum(
            data_points=points, aggregation_temporality=temporality, is_monotonic=True
        )
    else:
        data = export.Histogram(data_points=points, aggregation_temporality=temporality)
    return export.Metric(
        name=metric.name, description=metric.text, unit=metric.unit, data=data
    )


def _sdk_point(export: Any, point: Point | HistogramPoint, span: Span) -> Any:  # noqa: ANN401 - foreign
    times = {"start_time_unix_nano": span.start_ns, "time_unix_nano": span.end_ns}
    if isinstance(point, Point):
        value = int(point.value) if float(point.value).is_integer() else point.value
        return export.NumberDataPoint(
            attributes=dict(point.labels), value=value, **times
        )
    return export.HistogramDataPoint(
        attributes=dict(point.labels),
        count=sum(point.counts),
        sum=point.total,
        bucket_counts=list(point.counts),
        explicit_bounds=list(point.bounds),
        min=None,
        max=None,
        **times,
    )
