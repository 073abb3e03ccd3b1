"""Results and chords of Celery in the broker, without a worker."""

import itertools
import sys
import threading
import time
from types import SimpleNamespace

import pytest

celery = pytest.importorskip("celery")

from celery import states  # noqa: E402
from celery.exceptions import ImproperlyConfigured  # noqa: E402
from celery.utils import uuid  # noqa: E402

from rmq.testing import BrokerThread  # noqa: E402
from tests.integrations.workers import APP, import_app  # noqa: E402

numbers = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with BrokerThread(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def module(server):
    """The module of the tasks, with results in the broker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RMQ_TEST_RESULTS", "rmq://")
        loaded = import_app(patch, f"rmq://{server.name_server}")
    yield loaded
    loaded.app.close()
    sys.modules.pop(APP, None)


def test_a_result_is_found_by_any_process(module):
    task_id = uuid()
    request = SimpleNamespace(id=task_id, reply_to="another process")
    module.app.backend.store_result(task_id, 3, states.SUCCESS, request=request)
    other = module.app.AsyncResult(task_id)
    assert other.get(timeout=10) == 3
    assert other.state == states.SUCCESS


def test_a_result_reaches_the_caller_that_waits(module):
    result = module.add.delay(1, 2)
    request = SimpleNamespace(id=result.id, reply_to=module.app.thread_oid)
    store = module.app.backend.store_result
    keywords = {"request": request}
    thread = threading.Timer(0.2, store, (result.id, 3, states.SUCCESS), keywords)
    thread.start()
    assert result.get(timeout=10) == 3
    thread.join()


def test_a_call_gets_the_result_of_the_task_that_replaces_it(module):
    """A worker has called that task: the result goes to the worker."""
    result = module.add.delay(1, 2)
    request = SimpleNamespace(id=result.id, reply_to="a worker")
    module.app.backend.store_result(result.id, 3, states.SUCCESS, request=request)
    assert result.get(timeout=10) == 3


def test_short_waits_do_not_look_up_each_time(module, monkeypatch):
    backend = module.app.backend
    looked, find_meta = [], backend.find_meta

    def count(task_id):
        looked.append(task_id)
        return find_meta(task_id)

    monkeypatch.setattr(backend, "find_meta", count)
    result = module.add.delay(1, 2)
    with pytest.raises(celery.exceptions.TimeoutError):
        result.get(timeout=0.01)
    looked.clear()
    for _ in range(10):
        with pytest.raises(TimeoutError):
            backend.result_consumer.drain_events(timeout=0.02)
    assert looked == []


def test_a_wait_of_no_time_ends_at_once(module):
    module.add.delay(1, 2)
    begun_s = time.monotonic()
    with pytest.raises(TimeoutError):
        module.app.backend.result_consumer.drain_events(timeout=0)
    assert time.monotonic() - begun_s < 0.9


def test_the_last_state_counts(module):
    task_id, backend = uuid(), module.app.backend
    request = SimpleNamespace(id=task_id, reply_to=None)
    for state, value in ((states.STARTED, None), (states.FAILURE, ValueError("no"))):
        backend.store_result(task_id, value, state, request=request)
    with pytest.raises(ValueError, match="no"):
        module.app.AsyncResult(task_id).get(timeout=10)


def test_a_task_without_a_result_is_pending(module):
    assert module.app.AsyncResult("nothing").state == states.PENDING


def test_results_are_in_the_broker_of_the_tasks(module):
    settings = {"broker": "rmq://", "backend": "rmq://other:1"}
    app = celery.Celery("x", set_as_current=False, **settings)
    with pytest.raises(ImproperlyConfigured, match='the setting is "rmq://"'):
        app.backend  # noqa: B018


def parts_of(module, count):
    """A chord, and the requests of its parts."""
    group = f"group-{next(numbers)}"
    header = celery.group(module.add.s(n, n) for n in range(count))
    body = module.total.s().set(queue="bodies")
    results = header.freeze().results
    module.app.backend.apply_chord((group, results), body)
    module.app.backend.set_chord_size(group, count)
    return [
        SimpleNamespace(id=each.id, group=group, group_index=index, chord=dict(body))
        for index, each in enumerate(results)
    ]


def take_bodies(module):
    """The arguments of the bodies that were called."""
    found = []
    with module.app.connection() as connection:
        queue = connection.SimpleQueue("bodies")
        while (message := queue.queue(queue.channel).get(accept=["json"])) is not None:
            message.ack()
            found.append(message.payload[0])
    return found


def test_the_last_part_of_a_chord_calls_its_body_once(module):
    requests = parts_of(module, 20)
    backend = module.app.backend
    threads = [
        threading.Thread(
            target=backend.on_chord_part_return,
            args=(request, states.SUCCESS, request.group_index),
        )
        for request in reversed(requests)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert take_bodies(module) == [[list(range(20))]]


def test_a_part_that_runs_twice_does_not_count_twice(module):
    requests = parts_of(module, 2)
    for request in (requests[0], requests[0]):
        module.app.backend.on_chord_part_return(request, states.SUCCESS, 1)
    assert take_bodies(module) == []
    for request in (requests[1], requests[1]):
        module.app.backend.on_chord_part_return(request, states.SUCCESS, 2)
    assert take_bodies(module) == [[[1, 2]]]


def test_a_frozen_chord_that_is_applied_again_calls_its_body_again(module):
    requests = parts_of(module, 2)
    backend = module.app.backend
    results = [module.app.AsyncResult(each.id) for each in requests]
    for value in (1, 2):
        for request in requests:
            backend.on_chord_part_return(request, states.SUCCESS, value)
        body = requests[0].chord
        backend.apply_chord((requests[0].group, results), body)
        backend.set_chord_size(requests[0].group, 2)
        requests[1].chord = body
    assert take_bodies(module) == [[[1, 1]], [[2, 2]]]


def test_a_part_that_failed_fails_the_body(module):
    requests = parts_of(module, 2)
    body_id = requests[0].chord["options"]["task_id"] = "body-of-failure"
    requests[1].chord["options"]["task_id"] = body_id
    backend = module.app.backend
    backend.on_chord_part_return(requests[0], states.FAILURE, ValueError("no"))
    backend.on_chord_part_return(requests[1], states.SUCCESS, 2)
    assert take_bodies(module) == []
    assert module.app.AsyncResult(body_id).state == states.FAILURE


def test_a_group_in_the_body_gets_the_error_of_the_part(module):
    """As on Redis: its tasks fail with the cause, not with a ChordError."""
    requests = parts_of(module, 2)
    body = celery.group(module.total.s(), module.total.s())
    results = body.freeze(_id=f"body-{next(numbers)}").results
    for request in requests:
        request.chord.clear()
        request.chord.update(body)
    backend = module.app.backend
    backend.on_chord_part_return(requests[0], states.FAILURE, ValueError("no"))
    backend.on_chord_part_return(requests[1], states.SUCCESS, 2)
    with pytest.raises(ValueError, match="no"):
        module.app.AsyncResult(results[0].id).get(timeout=10)


def test_a_worker_that_dies_before_the_body_does_not_lose_it(module, monkeypatch):
    """The task has a late ack: it runs again, and stores its part again."""
    requests, backend = parts_of(module, 2), module.app.backend
    backend.on_chord_part_return(requests[0], states.SUCCESS, 1)

    def die(*arguments, **keywords):
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(celery.canvas.Signature, "delay", die)
        with pytest.raises(SystemExit):
            backend.on_chord_part_return(requests[1], states.SUCCESS, 2)
    assert take_bodies(module) == []
    for _ in range(2):
        backend.on_chord_part_return(requests[1], states.SUCCESS, 2)
    assert take_bodies(module) == [[[1, 2]]]
