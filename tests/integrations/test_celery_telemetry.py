"""OpenTelemetry's instrumentation of Celery works unchanged."""

import pytest

celery = pytest.importorskip("celery")
pytest.importorskip("opentelemetry.instrumentation.celery")

from celery.contrib.testing.worker import start_worker  # noqa: E402
from celery.signals import setup_logging  # noqa: E402
from opentelemetry.instrumentation.celery import CeleryInstrumentor  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (  # noqa: E402
    InMemorySpanExporter,
)
from opentelemetry.trace import SpanKind  # noqa: E402

import rmq.integrations.celery  # noqa: E402, F401 - registers the scheme


@pytest.fixture
def exporter():
    """The spans of Celery."""
    found, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    instrumentor = CeleryInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    yield found
    instrumentor.uninstrument()


@pytest.fixture
def logging_as_it_is():
    """Keep the level of the root logger, which a worker in this process sets."""

    def set_nothing(**_):
        pass

    setup_logging.connect(set_nothing)
    yield
    setup_logging.disconnect(set_nothing)


@pytest.mark.usefixtures("logging_as_it_is")
def test_a_call_and_its_task_are_one_trace(rmq_celery_url, exporter):
    app = celery.Celery("spans", broker=rmq_celery_url, backend="rmq://")

    @app.task(shared=False, name="spans.add")
    def add(left, right):
        return left + right

    options = {"perform_ping_check": False, "pool": "solo"}
    with start_worker(app, **options):
        assert add.delay(1, 2).get(timeout=10) == 3
    app.close()
    spans = {each.kind: each for each in exporter.get_finished_spans()}
    sent, run = spans[SpanKind.PRODUCER], spans[SpanKind.CONSUMER]
    assert run.context.trace_id == sent.context.trace_id
    assert run.parent.span_id == sent.context.span_id
    assert sent.attributes["messaging.destination"] == "celery"
    assert run.attributes["celery.state"] == "SUCCESS"
