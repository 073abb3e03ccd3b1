"""Metrics that a process exports by itself: to collectors by OTLP, and to the log.

The collectors are real servers, which decode the protocol buffers of OpenTelemetry.
"""

import json
import logging
import sys
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf

import grpc
import pytest
import trio
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1 import (
    metrics_service_pb2 as service,
)
from opentelemetry.proto.collector.metrics.v1 import (
    metrics_service_pb2_grpc as grpc_service,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics

from rmq.config.option import MetricsExporter, build
from rmq.container.config import ContainerConfig
from rmq.core.errors import ConfigError
from rmq.observe.config import ExportConfig
from rmq.observe.metrics import exporting
from rmq.observe.metrics.exporting import MetricsExport, open_exporter
from rmq.observe.metrics.exposition import (
    Family,
    counter_family,
    gauge_family,
    histogram_samples,
)
from rmq.observe.metrics.points import Deltas, HistogramPoint, Point, collect_metrics
from rmq.testing import ManualClock, running_controller, running_node
from tests.waiting import until

LABELS = {"cluster": "c"}


def some_families(count=3.0, size=7):
    """One family of each kind, and one without samples."""
    yield gauge_family("rocketmq_storage_size_bytes", "bytes", 1.5)
    yield counter_family("rocketmq_messages_in_total", "in", count, topic="T")
    samples = histogram_samples((1.0, 5.0), (2, 0, 1), size, {"code": "10"})
    yield Family("rocketmq_rpc_latency_milliseconds", "histogram", "time", samples)
    yield Family("rocketmq_empty", "gauge", "nothing", [])
    yield gauge_family("rmq_disk_free_bytes", "free", 4)


async def test_metrics_have_javas_names_and_units():
    found = await collect_metrics(some_families(), LABELS)
    assert [(each.name, each.unit, each.kind) for each in found] == [
        ("rocketmq_storage_size", "bytes", "gauge"),
        ("rocketmq_messages_in_total", "", "counter"),
        ("rocketmq_rpc_latency", "milliseconds", "histogram"),
        ("rmq_disk_free_bytes", "", "gauge"),
    ]
    assert found[1].points == [Point({"cluster": "c", "topic": "T"}, 3.0)]
    assert found[2].points == [
        HistogramPoint({"cluster": "c", "code": "10"}, (1.0, 5.0), (2, 0, 1), 7)
    ]


async def test_several_histograms_of_a_family_stay_apart():
    samples = [
        *histogram_samples((1.0,), (1, 2), 3, {"code": "10"}),
        *histogram_samples((1.0,), (0, 9), 8, {"code": "11"}),
    ]
    (found,) = await collect_metrics([Family("h", "histogram", "", samples)], {})
    assert [each.counts for each in found.points] == [(1, 2), (0, 9)]
    assert [each.total for each in found.points] == [3, 8]
    assert inf not in found.points[0].bounds


async def test_growth_is_since_the_last_time():
    deltas = Deltas()
    first = deltas.since_last(await collect_metrics(some_families(), LABELS))
    assert [each.points[0] for each in first] == [
        each.points[0] for each in await collect_metrics(some_families(), LABELS)
    ]
    second = deltas.since_last(await collect_metrics(some_families(5.0, 9), LABELS))
    values = [getattr(each.points[0], "value", None) for each in second]
    assert values == [1.5, 2, None, 4]
    assert second[2].points[0][2:] == ((0, 0, 0), 2)
    third = deltas.since_last(await collect_metrics(some_families(1.0), LABELS))
    assert third[1].points[0].value == 1.0, "the counter began again"
    assert deltas.since_last([]) == []
    (again,) = deltas.since_last(third[1:2])
    assert again.points[0].value == 1.0, "a point that was away is forgotten"


class Collector:
    """What collectors got: `bodies` are decoded requests, `headers` theirs."""

    def __init__(self):
        self.bodies, self.headers, self.is_away = [], [], False

    def numbers(self, name):
        """The values of all points of a metric in the last request."""
        return [
            point.as_int or point.as_double
            for resource in self.bodies[-1].resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in (metric.sum.data_points or metric.gauge.data_points)
        ]


@pytest.fixture
def http_collector():
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            data = self.rfile.read(int(self.headers["Content-Length"]))
            status = 400 if collector.is_away else 200
            if status == 200:
                collector.headers.append(dict(self.headers.items()))
                collector.bodies.append(
                    service.ExportMetricsServiceRequest.FromString(data)
                )
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    collector.target = f"http://127.0.0.1:{server.server_port}/v1/metrics"
    yield collector
    server.shutdown()
    server.server_close()


@pytest.fixture
def grpc_collector():
    collector = Collector()

    class Service(grpc_service.MetricsServiceServicer):
        def Export(self, request, context):
            collector.headers.append(dict(context.invocation_metadata()))
            collector.bodies.append(request)
            return service.ExportMetricsServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(1))
    grpc_service.add_MetricsServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    collector.target = f"http://127.0.0.1:{port}"
    yield collector
    server.stop(None).wait()


def make_export(kind, config, families=some_families):
    exporter = open_exporter(kind, config)
    meters = [("broker-meter", families, LABELS)]
    return MetricsExport(
        config,
        exporter,
        lambda: [(name, make(), labels) for name, make, labels in meters],
        ManualClock(),
    )


@pytest.mark.parametrize("kind", ["OTLP_GRPC", "OTLP_HTTP"])
async def test_a_collector_gets_all_metrics(kind, request):
    fixture = "grpc_collector" if kind == "OTLP_GRPC" else "http_collector"
    collector = request.getfixturevalue(fixture)
    config = ExportConfig(target=collector.target, headers="X-Team:rocket,b:2")
    await make_export(MetricsExporter[kind], config).export(3_000)
    (body,) = collector.bodies
    (scope,) = body.resource_metrics[0].scope_metrics
    assert scope.scope.name == "broker-meter"
    size, messages, latency, free = scope.metrics
    assert (size.name, size.unit) == ("rocketmq_storage_size", "bytes")
    assert size.gauge.data_points[0].as_double == 1.5
    assert messages.sum.is_monotonic
    assert messages.sum.aggregation_temporality == 2
    attributes = messages.sum.data_points[0].attributes
    assert {each.key: each.value.string_value for each in attributes} == {
        "cluster": "c",
        "topic": "T",
    }
    (point,) = latency.histogram.data_points
    assert (list(point.bucket_counts), point.count, point.sum) == ([2, 0, 1], 3, 7)
    assert list(point.explicit_bounds) == [1.0, 5.0]
    assert not point.HasField("min")
    assert free.gauge.data_points[0].as_int == 4
    headers = {name.lower(): value for name, value in collector.headers[0].items()}
    assert (headers["x-team"], headers["b"]) == ("rocket", "2")


async def test_a_collector_that_is_away_is_named_once(http_collector, caplog):
    caplog.set_level(logging.INFO, "rmq")
    export = make_export(
        MetricsExporter.OTLP_HTTP, ExportConfig(target=http_collector.target)
    )
    http_collector.is_away = True
    for _ in range(3):
        await export.export(1_000)
    http_collector.is_away = False
    await export.export(1_000)
    lines = [each.message for each in caplog.records if each.name.startswith("rmq")]
    assert len(lines) == 2
    assert f"metrics cannot be exported to {http_collector.target}: " in lines[0]
    assert lines[1] == f"metrics are exported to {http_collector.target} again"


async def test_growth_alone_is_exported(http_collector):
    config = ExportConfig(target=http_collector.target, is_delta=True)
    values = iter((3.0, 10.0))
    export = make_export(
        MetricsExporter.OTLP_HTTP, config, lambda: some_families(next(values))
    )
    for _ in range(2):
        await export.export(3_000)
    assert http_collector.numbers("rocketmq_messages_in_total") == [7]
    metric = http_collector.bodies[-1].resource_metrics[0].scope_metrics[0].metrics[1]
    assert metric.sum.aggregation_temporality == 1


async def test_the_log_has_a_line_of_otlp_json_for_each_metric(caplog):
    caplog.set_level(logging.INFO, exporting.__name__)
    await make_export(MetricsExporter.LOG, ExportConfig()).export(0)
    lines = [each.message for each in caplog.records if each.name == exporting.__name__]
    assert len(lines) == 4
    decoded = [json_format.Parse(line, ResourceMetrics()) for line in lines]
    metrics = [each.scope_metrics[0].metrics[0] for each in decoded]
    assert metrics[1].sum.data_points[0].as_int == 3
    assert metrics[0].gauge.data_points[0].as_double == 1.5
    assert list(metrics[2].histogram.data_points[0].bucket_counts) == [2, 0, 1]
    assert json.loads(lines[0])["resource"] == {"attributes": []}


async def test_a_broker_exports_until_it_stops(tmp_path, http_collector):
    settings = {
        "metricsExporterType": "OTLP_HTTP",
        "metricsGrpcExporterTarget": http_collector.target,
        "metricGrpcExporterIntervalInMills": "100",
        "metricsLabel": "zone:east",
    }
    async with running_node(tmp_path, settings):
        await until(lambda: http_collector.bodies)
        assert http_collector.numbers("rocketmq_broker_permission") == [6]
        count = len(http_collector.bodies)
    assert len(http_collector.bodies) > count, "a stop exports once more"
    scopes = http_collector.bodies[0].resource_metrics[0].scope_metrics
    assert [each.scope.name for each in scopes] == ["broker-meter", "rmq"]
    (point,) = scopes[0].metrics[0].gauge.data_points
    assert {each.key: each.value.string_value for each in point.attributes} == {
        "cluster": "DefaultCluster",
        "node_type": "broker",
        "node_id": "broker-test",
        "zone": "east",
    }


async def test_a_controller_exports(tmp_path, http_collector):
    settings = {
        "metricsExporterType": "OTLP_HTTP",
        "metricsGrpcExporterTarget": http_collector.target,
        "metricGrpcExporterIntervalInMills": "100",
    }
    async with running_controller(tmp_path, settings):
        await until(lambda: http_collector.bodies)
    assert http_collector.numbers("rmq_controller_running") == [1]


@pytest.mark.parametrize(
    ("kind", "config", "reason"),
    [
        (ExportConfig, {"metricsGrpcExporterHeader": "a"}, "write name:value"),
        (ExportConfig, {"metricsGrpcExporterHeader": ":b"}, "write name:value"),
        (ExportConfig, {"metricsGrpcExporterHeader": "a:\u20ac"}, "write name:value"),
        (
            ExportConfig,
            {"metricsGrpcExporterHeader": ",".join(f"a{n}:1" for n in range(33))},
            "at most 32 headers",
        ),
        (ContainerConfig, {"metricsExporterType": "LOG"}, "a container has PROM only"),
    ],
)
def test_values_that_cannot_work_are_refused(kind, config, reason):
    with pytest.raises(ConfigError, match=reason):
        build(kind, config)


def test_a_target_without_a_scheme_is_https_as_in_java():
    assert ExportConfig(target="host:4317").url == "https://host:4317"
    assert ExportConfig(target="http://host:4317").url == "http://host:4317"


def test_the_start_names_what_is_missing(monkeypatch):
    with pytest.raises(ConfigError, match="set metricsGrpcExporterTarget"):
        open_exporter(MetricsExporter.OTLP_GRPC, ExportConfig())
    module = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"pip install .*otlp"):
        open_exporter(MetricsExporter.OTLP_HTTP, ExportConfig(target="x:1"))


async def test_an_export_that_hangs_does_not_delay_a_stop(autojump_clock):
    class Hanging:
        def export(self, *_):
            done.wait(10)

        def shutdown(self, *_):
            done.wait(10)

    done = threading.Event()
    config = ExportConfig(interval_ms=100)
    export = MetricsExport(config, Hanging(), list, ManualClock())
    began = trio.current_time()
    with trio.move_on_after(1):
        await export.run()
    done.set()
    assert trio.current_time() - began < 4
