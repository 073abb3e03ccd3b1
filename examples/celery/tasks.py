"""Celery on rmq: a task, a chord, a task at a time of its own, and beat.

In one terminal `celery -A tasks worker --beat`, in another `python tasks.py`.
"""

import os
from datetime import datetime

from celery import Celery, chord

import rmq.integrations.celery  # noqa: F401 - adds the scheme rmq://

address = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
app = Celery("tasks", broker=f"rmq://{address}", backend="rmq://")
app.conf.beat_schedule = {"tick": {"task": "tasks.tick", "schedule": 60.0}}


@app.task(name="tasks.add")
def add(left: int, right: int) -> int:
    """Return a sum."""
    return left + right


@app.task(name="tasks.total")
def total(numbers: list[int]) -> int:
    """Return the sum of the results of a chord."""
    return sum(numbers)


@app.task(name="tasks.tick", ignore_result=True)
def tick() -> None:
    """Print the time, each minute by beat."""
    print("tick", datetime.now().isoformat(timespec="seconds"))


def main() -> None:
    """Call the tasks, and print their results."""
    print("add:", add.delay(1, 2).get(timeout=30))
    later = add.apply_async((3, 4), countdown=2)
    parts = chord([add.s(number, number) for number in range(10)])(total.s())
    print("chord:", parts.get(timeout=30))
    print("two seconds later:", later.get(timeout=30))


if __name__ == "__main__":
    main()
