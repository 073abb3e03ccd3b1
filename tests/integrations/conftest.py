"""A broker for the tests of a module, and readers of its queues."""

import itertools

import pytest

from rmq.integrations.names import Names
from rmq.integrations.queue_reader import QueueReader
from rmq.integrations.task_link import TaskLink
from rmq.testing import BrokerThread

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerThread(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def name():
    """The name of a queue that no other test uses."""
    return f"queue-{next(_numbers)}"


@pytest.fixture
def read(broker):
    """A function that opens readers; they are closed at the end."""
    opened = []

    def open_reader(*queues, prefetch_count=4, **options):
        link = TaskLink([broker.name_server])
        reader = QueueReader(
            link, Names(), queues, prefetch_count=prefetch_count, **options
        )
        opened.append(reader)
        return reader

    yield open_reader
    for each in opened:
        each.close()
