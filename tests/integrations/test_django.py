"""Tasks of Django on rmq."""

import datetime as dt
import sys
import threading
import time
from types import ModuleType

import pytest

django = pytest.importorskip("django")
pytest.importorskip("django_tasks")

from django.conf import settings  # noqa: E402

if not settings.configured:
    settings.configure(
        INSTALLED_APPS=["django_tasks"],
        USE_TZ=True,
        TASKS={"default": {"BACKEND": "django_tasks.backends.dummy.DummyBackend"}},
    )
    django.setup()

import django_tasks  # noqa: E402
from django.test import override_settings  # noqa: E402
from django.utils import timezone  # noqa: E402
from django_tasks import signals  # noqa: E402
from django_tasks.exceptions import (  # noqa: E402
    InvalidTaskError,
    TaskResultDoesNotExist,
)

from rmq.integrations.django import RmqBackend, TaskWorker, step_of  # noqa: E402
from rmq.testing import BrokerThread  # noqa: E402

seen: list[object] = []


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with BrokerThread(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def backend(server):
    """The backend `default` of this thread; other threads make their own."""
    options = {"name_server": server.name_server, "results": True}
    kind = "rmq.integrations.django.RmqBackend"
    params = {"BACKEND": kind, "QUEUES": ["default", "mail"], "OPTIONS": options}
    with override_settings(TASKS={"default": params}):
        opened = django_tasks.task_backends["default"]
        assert isinstance(opened, RmqBackend)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def tasks(backend):
    """A module with tasks: Django finds them by their paths."""
    module = ModuleType("rmq_test_tasks")
    sys.modules["rmq_test_tasks"] = module
    source = """
import django_tasks
from tests.integrations.test_django import seen

@django_tasks.task()
def add(left, right):
    return left + right

@django_tasks.task(queue_name="mail", takes_context=True)
def count_attempts(context):
    return context.attempt

@django_tasks.task()
def fail():
    raise ValueError("broken")

@django_tasks.task()
async def later(text):
    seen.append(text)
    return text

@django_tasks.task()
def put(text):
    seen.append(text)
"""
    exec(compile(source, "rmq_test_tasks", "exec"), module.__dict__)
    yield module
    del sys.modules["rmq_test_tasks"]


@pytest.fixture
def worker(backend, tasks):
    running = TaskWorker(backend, ["default", "mail"], 2, "worker-1")
    thread = threading.Thread(target=running.run)
    thread.start()
    yield running
    running.stop()
    thread.join(10)
    assert not thread.is_alive()


def wait_for(result, limit_s=10):
    end_s = time.monotonic() + limit_s
    while not result.is_finished:
        assert time.monotonic() < end_s, result
        time.sleep(0.02)
        result.refresh()
    return result


def test_a_task_runs_and_its_result_is_found(tasks, worker):
    result = wait_for(tasks.add.enqueue(1, right=2))
    assert result.return_value == 3
    assert result.worker_ids == ["worker-1"]
    assert result.started_at <= result.finished_at
    assert tasks.add.get_result(result.id).return_value == 3


def test_a_task_may_have_its_context(tasks, worker):
    assert wait_for(tasks.count_attempts.enqueue()).return_value == 1


def test_a_task_that_raises_has_failed_and_does_not_run_again(tasks, worker):
    result = wait_for(tasks.fail.enqueue())
    (error,) = result.errors
    assert error.exception_class is ValueError
    assert "broken" in error.traceback
    assert result.attempts == 1


def test_a_task_whose_state_is_not_recorded_comes_again(tasks, worker):
    calls = []

    def fail_once(sender, **_):
        calls.append(sender)
        if len(calls) == 1:
            raise RuntimeError("the database is away")

    signals.task_started.connect(fail_once, weak=False)
    try:
        assert wait_for(tasks.add.enqueue(1, 2), 30).return_value == 3
    finally:
        signals.task_started.disconnect(fail_once)
    assert len(calls) == 2


def test_a_coroutine_runs(tasks, worker):
    assert wait_for(tasks.later.enqueue("x")).return_value == "x"


def test_a_task_waits_until_its_time(tasks, worker):
    moment = timezone.now() + dt.timedelta(seconds=1)
    result = wait_for(tasks.add.using(run_after=moment).enqueue(1, 1))
    assert result.started_at >= moment


def test_larger_priorities_run_first(backend, tasks):
    seen.clear()
    for priority in (-100, 0, 100):
        tasks.put.using(priority=priority).enqueue(priority)
    running = TaskWorker(backend, ["default"], 1, "one")
    thread = threading.Thread(target=running.run)
    thread.start()
    end_s = time.monotonic() + 10
    while len(seen) < 3 and time.monotonic() < end_s:
        time.sleep(0.02)
    running.stop()
    thread.join(10)
    assert seen == [100, 0, -100]


def test_unknown_queues_and_results_are_errors(backend, tasks):
    with pytest.raises(InvalidTaskError):
        tasks.add.using(queue_name="other")
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result("no such id")


def test_a_task_that_cannot_be_read_is_a_dead_letter(server, worker):
    server.send("default", b"from Java")
    end_s = time.monotonic() + 10
    while not server.messages("%DLQ%default"):
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_steps_of_priorities():
    assert [step_of(each) for each in (-100, -81, -80, 0, 99, 100)] == [
        0,
        0,
        1,
        5,
        9,
        9,
    ]
