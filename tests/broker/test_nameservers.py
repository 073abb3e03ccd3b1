"""Several name servers: each is told by itself, whatever the others do."""

import socket
from contextlib import contextmanager

import pytest
import trio

from rmq.protocol.bodies.topics import TopicConfig
from rmq.testing import running_name_server, running_node

pytestmark = pytest.mark.slow


@contextmanager
def silent_server():
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


async def until(is_so):
    with trio.fail_after(5):
        while not is_so():
            await trio.lowlevel.checkpoint()


async def test_a_silent_name_server_holds_neither_start_nor_stop_nor_the_others(
    tmp_path,
):
    with silent_server() as silent:
        async with running_name_server(tmp_path / "n") as names:
            routes = names.name_server.routes
            settings = {"namesrvAddr": f"{silent};{names.name_servers[0]}"}
            before = trio.current_time()
            async with running_node(tmp_path / "s", settings) as node:
                assert trio.current_time() - before < 3
                assert routes.group("broker-test") is not None
                topics = node.broker.context.topics
                topics.update(TopicConfig(topic_name="Fresh"))
                await until(lambda: routes.route("Fresh") is not None)
                status = node.broker.context.name_servers.statistics()
                assert [one.is_registered for one in status] == [False, True]
                before = trio.current_time()
            assert trio.current_time() - before < 6
            assert routes.group("broker-test") is None


async def test_a_name_server_that_returns_is_told_everything(tmp_path, monkeypatch):
    monkeypatch.setattr("rmq.remoting.client.BACK_OFF_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"namesrvAddr": f"127.0.0.1:{port}"}
    async with running_node(tmp_path / "s", settings) as node:
        names = node.broker.context.name_servers
        (status,) = names.statistics()
        assert not status.is_registered
        assert str(port) in status.error
        listening = {"listenPort": str(port)}
        async with running_name_server(tmp_path / "n", listening) as server:
            names.register_soon()
            routes = server.name_server.routes
            await until(lambda: routes.group("broker-test") is not None)
            await until(lambda: names.statistics()[0].is_registered)
            assert len(routes.topics()) >= 14


async def test_topics_changed_together_reach_the_name_server(tmp_path):
    async with running_node(tmp_path) as node:
        topics, routes = node.broker.context.topics, node.name_server.routes
        for name in ("A", "B", "C"):
            topics.update(TopicConfig(topic_name=name))
        await until(lambda: all(routes.route(name) for name in "ABC"))


async def test_a_topic_in_order_is_marked_on_the_broker(tmp_path):
    async with running_node(tmp_path) as node:
        topics = node.broker.context.topics
        topics.update(TopicConfig(topic_name="Ordered"))
        node.name_server.kv_config.put("ORDER_TOPIC_CONFIG", "Ordered", "broker-test:4")
        node.broker.context.name_servers.register_soon()
        await until(lambda: topics.get("Ordered").order)
