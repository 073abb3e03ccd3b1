"""Celery's workers on rmq: pools, kills of workers and brokers."""

import time

import pytest

from tests.integrations.workers import (
    Broker,
    Worker,
    import_app,
    lines_of,
    working,
)
from tests.waiting import wait_until

celery = pytest.importorskip("celery")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    running = Broker(tmp_path_factory.mktemp("broker"))
    yield running
    running.stop()


@pytest.fixture
def own_broker(tmp_path):
    """A broker that the test kills."""
    running = Broker(tmp_path / "broker")
    yield running
    running.stop()


@pytest.fixture
def tasks(monkeypatch):
    """A function that returns the module of the tasks, for a broker."""

    def load(url):
        module = import_app(monkeypatch, url)
        loaded.append(module.app)
        return module

    loaded = []
    yield load
    for app in loaded:
        app.close()


@pytest.mark.parametrize("pool", ["prefork", "solo", "threads", "gevent", "eventlet"])
def test_a_worker_runs_tasks(broker, tasks, tmp_path, pool):
    if pool in ("gevent", "eventlet"):
        pytest.importorskip(pool)
    module = tasks(broker.url)
    options = ("-P", pool, "-c", "2", "-l", "info", "-n", f"{pool}@test")
    with working(tmp_path / "log", broker.url, *options) as worker:
        wait_until(lambda: worker.is_ready)
        assert module.add.delay(1, 2).get(timeout=10) == 3
        results = [module.add.delay(i, i) for i in range(100)]
        assert [each.get(timeout=10) for each in results] == [2 * i for i in range(100)]
        begun_s = time.monotonic()
        later = module.add.apply_async((3, 4), countdown=1.5)
        assert later.get(timeout=10) == 7
        assert 1.4 < time.monotonic() - begun_s < 4
        assert module.flaky.delay(str(tmp_path / "flaky")).get(timeout=10) == 2
        assert (tmp_path / "flaky").read_text().split() == ["0", "1", "2"]
        late = module.record.delay(str(tmp_path / "record"), "x")
        late.get(timeout=10)
        assert lines_of(tmp_path / "record") == ["begin x", "end x"]
        (pong,) = module.app.control.ping([f"{pool}@test"], timeout=2)
        assert pong == {f"{pool}@test": {"ok": "pong"}}
        assert worker.stop() == 0
        assert "Traceback" not in worker.text
    with module.app.connection() as connection:
        assert connection.SimpleQueue("celery").qsize() == 0


def test_each_process_of_a_pool_may_run_one_task(broker, tasks, tmp_path):
    """The worker forks all the time, also while it renews the long task."""
    module, path = tasks(broker.url), tmp_path / "record"
    options = ("-P", "prefork", "-c", "2", "--max-tasks-per-child", "1")
    visibility = {"RMQ_TEST_VISIBILITY": "5"}
    with working(tmp_path / "log", broker.url, *options, **visibility) as worker:
        long = module.record.delay(str(path), "long", 8)
        wait_until(lambda: lines_of(path) == ["begin long"])
        results = [module.add.delay(i, 1) for i in range(100)]
        assert [each.get(timeout=60) for each in results] == list(range(1, 101))
        long.get(timeout=20)
        assert worker.stop() == 0
    assert lines_of(path) == ["begin long", "end long"]


def test_workers_find_each_other(broker, tasks, tmp_path):
    first = working(tmp_path / "one", broker.url, "-P", "solo", "-n", "one@test",
                    "-l", "info")  # fmt: skip
    second = working(tmp_path / "two", broker.url, "-P", "solo", "-n", "two@test",
                     "-l", "info")  # fmt: skip
    with first as one:
        wait_until(lambda: one.is_ready)
        with second as two:
            wait_until(lambda: two.is_ready)
            assert "mingle: sync with 1 nodes" in two.text
            names = {name for each in tasks(broker.url).app.control.ping(timeout=2)
                     for name in each}  # fmt: skip
            assert names == {"one@test", "two@test"}


def test_tasks_of_a_killed_worker_run_elsewhere(broker, tasks, tmp_path):
    module, path = tasks(broker.url), tmp_path / "record"
    options = ("-P", "prefork", "-c", "1", "--prefetch-multiplier", "1")
    first = Worker(tmp_path / "one", broker.url, *options, RMQ_TEST_VISIBILITY="5")
    try:
        module.record.delay(str(path), "x", 30)
        wait_until(lambda: lines_of(path) == ["begin x"])
    finally:
        first.kill()
    module.record.delay(str(path), "y")
    with working(tmp_path / "two", broker.url, *options) as second:
        begun_s = time.monotonic()
        wait_until(lambda: lines_of(path).count("begin x") == 2)
        assert time.monotonic() - begun_s < 8
        second.kill()
    assert "end y" in lines_of(path)


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_a_task_longer_than_its_visibility_runs_once(broker, tasks, tmp_path, pool):
    module, path = tasks(broker.url), tmp_path / "record"
    options = ("-P", pool, "-c", "1", "--prefetch-multiplier", "1")
    visibility = {"RMQ_TEST_VISIBILITY": "5"}
    with (
        working(tmp_path / "1", broker.url, *options, "-n", "1@t", **visibility),
        working(tmp_path / "2", broker.url, *options, "-n", "2@t", **visibility),
    ):
        module.record.delay(str(path), "x", 12).get(timeout=40)
        time.sleep(1)
    assert lines_of(path) == ["begin x", "end x"]


def test_a_broker_that_is_killed_costs_nothing(own_broker, tasks, tmp_path):
    module, path = tasks(own_broker.url), tmp_path / "record"
    options = ("-P", "prefork", "-c", "2", "-l", "info")
    with working(tmp_path / "log", own_broker.url, *options) as worker:
        wait_until(lambda: worker.is_ready)
        module.record.apply_async((str(path), "long", 6), ignore_result=True)
        wait_until(lambda: lines_of(path) == ["begin long"])
        for number in range(50):
            module.record.apply_async((str(path), str(number)), ignore_result=True)
        own_broker.server.kill()
        time.sleep(1)
        own_broker.start()
        wait_until(lambda: len(lines_of(path)) >= 102)
        module.record.apply_async((str(path), "after"), ignore_result=True)
        wait_until(lambda: "end after" in lines_of(path))
        assert "connection to broker lost" not in worker.text.lower()
        assert worker.stop() == 0
    ended = [line for line in lines_of(path) if line.startswith("end")]
    assert sorted(set(ended)) == sorted(ended)
    assert lines_of(path).count("begin long") == 1
    assert len(ended) == 52
