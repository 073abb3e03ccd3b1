"""The memory of a worker over many tasks; RMQ_TEST_TASKS is their number."""

import os

import pytest

pytest.importorskip("celery")

from tests.integrations.workers import Broker, import_app, working
from tests.waiting import wait_until

TASKS = int(os.environ.get("RMQ_TEST_TASKS", 20_000))
LIMIT_S = max(1_800, TASKS // 10)
PART = 1_000
WAIT_S = 600
"""Time limit of a part: other work of the machine may delay it."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S), pytest.mark.plain]

GROWTH_MIB = 6
"""Growth after the first quarter. Settled messages are remembered up to a limit that
the first quarter fills."""


def resident_mib(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_does_not_grow(pool, tmp_path, monkeypatch):
    broker = Broker(tmp_path / "broker", "mappedFileSizeCommitLog=67108864")
    module = import_app(monkeypatch, broker.url)
    # all processes may be stopped for minutes, and then no master is registered
    module.app.conf.task_publish_retry_policy = {"max_retries": 600, "interval_max": 1}
    sizes = []
    try:
        options = ("-P", pool, "-c", "2", "--without-gossip", "--without-mingle")
        with working(tmp_path / "log", broker.url, *options) as worker:
            for _ in range(0, TASKS, PART):
                for number in range(PART - 1):
                    module.add.apply_async((number, 1), ignore_result=True)
                last = module.add.delay(1, 2)
                assert last.get(timeout=WAIT_S) == 3
                sizes.append(resident_mib(worker.process.pid))
            with module.app.connection() as connection:
                wait_until(lambda: connection.SimpleQueue("celery").qsize() == 0)
    finally:
        module.app.close()
        broker.stop()
    shown = [round(each, 1) for each in sizes]
    print(f"\n{pool}: {TASKS} tasks, MiB after each {PART}: {shown}")  # noqa: T201 - for -s
    first = sizes[max(0, len(sizes) // 4 - 1)]
    assert sizes[-1] - first < GROWTH_MIB, shown
