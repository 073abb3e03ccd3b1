"""A broker for the tests of a module, and connections of kombu to it."""

import pytest

from rmq.testing import BrokerThread


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerThread(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def connect(broker):
    """A function that opens connections; they are closed at the end."""
    import kombu

    import rmq.integrations.celery  # noqa: F401 - registers the scheme

    opened = []

    def open_connection(space="", **options):
        url = f"rmq://{broker.name_server}/{space}"
        connection = kombu.Connection(url, transport_options=options)
        connection.connect()
        opened.append(connection)
        return connection

    yield open_connection
    for each in opened:
        each.release()
