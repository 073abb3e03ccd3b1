"""The application of `lab/tasks.py`; its broker and its backend are in the environment.

`noop` counts its runs in a file of its process.
"""

import os
import struct
import threading
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


class Counter:
    """Counts runs in a file of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        path = Path(os.environ["LAB_COUNTS"]) / str(self.pid)
        self._file = os.open(path, os.O_CREAT | os.O_RDWR)
        self._count = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        """Count a run; a pool may run tasks in threads."""
        with self._lock:
            self._count += 1
            os.pwrite(self._file, struct.pack("<q", self._count), 0)


_making = threading.Lock()
_counter: Counter | None = None


@app.task(shared=False, ignore_result=True)
def noop(number: int) -> None:
    """Count a run."""
    global _counter
    if _counter is None or _counter.pid != os.getpid():
        with _making:
            if _counter is None or _counter.pid != os.getpid():
                _counter = Counter()
    _counter.add()


@app.task(shared=False)
def add(left: int, right: int) -> int:
    """Return a sum."""
    return left + right
