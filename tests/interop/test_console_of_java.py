"""A broker of Java behind rmq's name server, in `rmq top` and in a console."""

import re

import pytest

from tests.console.doors import Top, watched
from tests.waiting import wait_until

from . import wire
from .conftest import prepared
from .drivers import driving, send
from .processes import free_port
from .test_name_servers import brokers, java_server
from .toolchains import Go, Java

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NAME, TOPIC, GROUP = "broker-java", "Orders", "billing"
COUNT, MORE = 40, 25


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A broker of rmq with its console and name server, one of Java in its cluster."""
    folder, port = tmp_path_factory.mktemp("cluster"), free_port()
    with watched(folder / "rmq", "brokerName=broker-rmq") as doors:
        settings = {
            "brokerName": NAME, "brokerIP1": "127.0.0.1", "listenPort": port,
            "haListenPort": port - 1, "storePathRootDir": folder / "store",
            "mappedFileSizeCommitLog": 16 << 20, "timerWheelEnable": "false",
            "namesrvAddr": doors.server.namesrv,
        }  # fmt: skip
        with java_server(folder / "java", "broker.BrokerStartup", settings):
            namesrv = doors.server.namesrv
            wait_until(lambda: NAME in brokers(namesrv), "registered", 60)
            yield doors, f"127.0.0.1:{port}"


def row_of(text, name):
    """The cells of the first line of a picture that begins with a name."""
    lines = (line for line in text.splitlines() if line.startswith(name))
    return re.split(r" {2,}", next(lines, "").strip())


@pytest.mark.parametrize("kind", [Java, Go], ids=["java", "go"])
def test_a_group_on_a_broker_of_java(cluster, tmp_path, kind):
    doors, address = cluster
    client, namesrv = prepared(kind()), doors.server.namesrv
    topic, group = f"{TOPIC}-{kind.__name__}", f"{GROUP}-{kind.__name__}"
    wire.make_topic(address, topic, 4)
    wait_until(lambda: wire.route(namesrv, topic) is not None, "route")
    home = tmp_path / "in"
    with driving(client, home, "push", namesrv, topic, 0, f"group={group}") as one:
        one.wait_ready()
        send(client, tmp_path / "first", namesrv, topic, COUNT)
        one.wait_received(COUNT)
        one.finish()
    send(client, tmp_path / "more", namesrv, topic, MORE)
    top = Top(namesrv)
    sentence = f"No client consumes; {MORE} messages wait."
    try:
        wait_until(lambda: sentence in top.screen, "rmq top", 30)
        name, lag, _, out, clients, *_, why = row_of(top.screen, group)
        assert (name, lag, out, clients, why) == (group, str(MORE), "0", "0", sentence)
        name, _, _, lag, kept, queues = row_of(top.screen, topic)
        assert (name, lag, kept, queues) == (topic, str(MORE), "-", "4")
        assert "broker-java, broker-rmq" in top.screen.splitlines()[0]
    finally:
        top.end()
    path = f"broker?address={address}"

    def told_row():
        rows = doors.api(path)["groups"]
        return next((row for row in rows if row["name"] == group), {"message": ""})

    wait_until(lambda: told_row()["message"] == sentence, "the console", 30)
    assert (told_row()["lag"], told_row()["clients"]) == (MORE, 0)
    told = doors.api(path)
    assert (told["node"], told["told_by"]) == (NAME, "java")
    assert told["version"].startswith("Java V5_5_0")
    assert 0 < told["disk"]["share"] < 1
    own = [row for row in doors.api("groups")["rows"] if row["name"] == group]
    assert not own, "the console's own lists show its own broker"
