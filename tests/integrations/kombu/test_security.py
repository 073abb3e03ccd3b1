"""The transport over TLS, with users and their rights."""

import kombu
import pytest
from click.testing import CliRunner

import rmq.integrations.celery  # noqa: F401 - registers the schemes
from rmq.cli import main
from rmq.core.errors import PeerError
from rmq.outgoing.refused import AnswerRefused

USER, PASSWORD = "web", "web-secret"


@pytest.fixture
def connect(secured, authority):
    """A function that returns a connection; it is closed at the end."""
    opened = []

    def make(user, password, scheme="rmqs", **options):
        url = f"{scheme}://{user}:{password}@{secured.name_server}//"
        tls = {"ca_certs": str(authority / "ca.pem")} if scheme == "rmqs" else False
        connection = kombu.Connection(url, ssl=tls, transport_options=options)
        opened.append(connection)
        return connection

    yield make
    for each in opened:
        each.release()


@pytest.fixture
def allow(secured, authority, tmp_path, monkeypatch):
    """A function that makes the user, and allows actions."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name, text in (("boss", "secret"), (USER, PASSWORD)):
        (tmp_path / name).write_text(text)
    runner = CliRunner(
        env={"RMQ_USER": "boss", "RMQ_PASSWORD_FILE": str(tmp_path / "boss")}
    )
    where = ("-n", secured.name_server, "--ca", str(authority / "ca.pem"))

    def run(*words):
        done = runner.invoke(main, [*words, *where])
        assert done.exit_code == 0, done.output

    run("user", "create", USER, "--password-file", str(tmp_path / USER))
    yield lambda resource, actions: run("user", "allow", USER, resource, actions)
    run("user", "rm", USER, "--yes")


def exchange(connection, queue):
    """Send a message to a queue and take it."""
    box = connection.SimpleQueue(queue)
    box.put({"a": 1})
    message = box.get(timeout=5)
    message.ack()
    box.close()
    return message.payload


def test_tasks_go_over_tls_with_a_user(connect):
    assert exchange(connect("boss", "secret"), "secured-boss") == {"a": 1}


def test_the_rights_of_the_page_are_enough(connect, allow):
    allow("Cluster:*", "Get")
    allow("Topic:secured-web", "Pub,Sub,Get,Create")
    allow("Topic:%X%*", "Pub,Sub,Get,Create")
    allow("Group:secured-web*", "Sub,Get")
    assert exchange(connect(USER, PASSWORD), "secured-web") == {"a": 1}


def test_a_right_that_is_missing_is_named(connect, allow):
    allow("Cluster:*", "Get")
    with pytest.raises(AnswerRefused, match="secured-none"):
        exchange(connect(USER, PASSWORD), "secured-none")


def test_a_wrong_password_is_refused(connect):
    with pytest.raises(PeerError, match="signature"):
        connect("boss", "wrong").connect()


def test_a_plain_connection_names_tls(connect):
    with pytest.raises(PeerError, match="wants TLS"):
        connect("boss", "secret", scheme="rmq").connect()
