"""A broker without work sleeps."""

from collections import Counter

import trio

from rmq.testing import running_node

SECONDS = 60


class Wakes(trio.abc.Instrument):
    """How often each task ran."""

    def __init__(self):
        self.by_task = Counter()

    def task_scheduled(self, task):
        self.by_task[task.name] += 1


async def test_nobody_wakes_an_idle_broker_more_than_five_times_a_second(
    tmp_path, autojump_clock
):
    async with running_node(tmp_path):
        await trio.sleep(10)
        wakes = Wakes()
        trio.lowlevel.add_instrument(wakes)
        await trio.sleep(SECONDS)
        trio.lowlevel.remove_instrument(wakes)
    assert wakes.by_task.total() <= 5 * SECONDS, wakes.by_task
