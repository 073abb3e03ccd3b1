"""The application of `lab/tasks.py`; its broker and its backend are in the environment.

`noop` counts its runs in a file of its process.
"""

import os
import struct
from pathlib import Path

from celery import Celery
from kombu import Queue

import rmq.integrations.celery  # noqa: F401 - adds the scheme rmq://

app = Celery(
    "lab", broker=os.environ["LAB_URL"], backend=os.environ.get("LAB_RESULTS") or None
)
app.conf.update(
    task_queues=[Queue("celery")],
    worker_prefetch_multiplier=4,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)
_counter: tuple[int, int, int] | None = None


@app.task(shared=False, ignore_result=True)
def noop(number: int) -> None:
    """Count a run."""
    global _counter
    pid = os.getpid()
    if _counter is None or _counter[0] != pid:
        path = Path(os.environ["LAB_COUNTS"]) / str(pid)
        _counter = pid, os.open(path, os.O_CREAT | os.O_RDWR), 0
    _, file, count = _counter
    _counter = pid, file, count + 1
    os.pwrite(file, struct.pack("<q", count + 1), 0)


@app.task(shared=False)
def add(left: int, right: int) -> int:
    """Return a sum."""
    return left + right
