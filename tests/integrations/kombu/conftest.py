"""Connections of kombu to the broker of a module."""

import pytest


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
