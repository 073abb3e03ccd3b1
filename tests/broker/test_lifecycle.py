"""A broker starts step by step; a step that fails leaves nothing behind."""

import contextlib
import functools
import socket
import sys
import threading

import pytest
import trio

from rmq.config.broker import BrokerConfig
from rmq.config.option import build
from rmq.core.errors import ConfigError, PeerClosed, PluginError, StoreError
from rmq.node.broker import run_broker
from rmq.plugin.registry import PluginSet
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.store.config import StoreConfig
from rmq.store.data_dir import DataDirectory
from rmq.testing import RawClient, running_name_server, running_node
from rmq.testing.broker import SMALL_SETTINGS
from tests.interop.processes import free_port

SEND_FIELDS = {
    "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
    "h": "0", "i": "UNIQ_KEY\x01A\x02", "j": "0",
}  # fmt: skip


PULL_FIELDS = {
    "consumerGroup": "G", "topic": "T", "queueId": "0", "maxMsgNums": "32",
    "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "5000",
    "subscription": "*", "subVersion": "0",
}  # fmt: skip


@contextlib.asynccontextmanager
async def refused(kind, match):
    """The block must end with this error, wrapped in the groups of nurseries or not."""
    with pytest.raises((kind, BaseExceptionGroup)) as caught:
        yield
    [error] = leaves(caught.value)
    assert isinstance(error, kind)
    assert match in str(error)


def leaves(error):
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in leaves(part)]
    return [error]


def assert_nothing_left(folder):
    """The directory can be taken at once and nothing says that a start went wrong."""
    directory = DataDirectory(StoreConfig(root_dir=str(folder)))
    directory.acquire()
    assert not directory.abort.is_set
    directory.release()


async def send(client, **more):
    request = Command.request(RequestCode.SEND_MESSAGE_V2, body=b"hello")
    request.ext_fields = {**SEND_FIELDS, **more}
    return await client.call(request)


async def send_later(client):
    await trio.sleep(0.05)
    assert (await send(client)).code == ResponseCode.SUCCESS


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs a plugin beside the built-in ones."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def call(name, text):
        (folder / f"broken_{name}.py").write_text(text)
        info = folder / f"broken_{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: broken_{name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[rmq.plugins]\n{name}=broken_{name}\n")

    yield call
    for module in [m for m in sys.modules if m.startswith("broken_")]:
        del sys.modules[module]


@pytest.mark.parametrize("distance", [0, 2])
async def test_a_taken_port_is_named_and_nothing_is_opened(tmp_path, distance):
    port = free_port()
    settings = {"listenPort": str(port), "haListenPort": str(free_port())}
    with socket.create_server(("127.0.0.1", port - distance)):
        node = running_node(tmp_path / "s", settings)
        async with refused(ConfigError, str(port - distance)), node:
            pass
    assert not (tmp_path / "s" / "abort").exists()
    async with running_node(tmp_path / "s", settings) as node:
        assert (node.broker.port, node.broker.fast_port) == (port, port - 2)


async def test_a_directory_in_use_is_refused(tmp_path):
    async with running_node(tmp_path):
        async with refused(StoreError, str(tmp_path)), running_node(tmp_path):
            pass
        assert (tmp_path / "abort").exists()


@pytest.mark.parametrize("name", ["topics", "subscriptionGroup", "consumerOffset"])
async def test_a_table_that_cannot_be_read_stops_the_start(tmp_path, name):
    file = tmp_path / "config" / f"{name}.json"
    file.parent.mkdir(parents=True)
    backup = file.with_suffix(".json.bak")
    for path in (file, backup):
        path.write_text('{"cut')
    async with refused(StoreError, f"{backup}"), running_node(tmp_path):
        pass
    assert_nothing_left(tmp_path)
    assert file.read_text() == '{"cut'
    file.unlink()
    backup.unlink()
    async with running_node(tmp_path) as node:
        assert node.broker.context.topics.get("TBW102") is not None


BROKEN_PLUGINS = {
    "handler": ("register.handler(10, print)", "code 10 belongs to plugin"),
    "fails": ("raise LookupError('gone')", "rmq_setup failed: LookupError('gone')"),
    "native": ("register.native(9999, print)", "9999 has no Python handler"),
    "no native": (
        "register.handler(9999, print); register.native(9999, dict)",
        "{}, made for request code 9999, is no NativeHandler",
    ),
    "service": ("register.service(print)", "is not an async function"),
    "port": ("register.handler(9999, print, ports=('slow',))", "main and fast"),
    "triggers": ("register.interceptor('level', print)", 'such as {"level"}'),
    "table": ("register.table('x.json')", "is no JsonTable"),
    "config": ("register.config(dict)", "the keys would be unknown"),
    "callback": ("register.on_stop(None)", "register.on_stop: None cannot be called"),
    "facts": ("register.facts('delayOffset', dict)", "belong to plugin"),
}


@pytest.mark.parametrize("hook", BROKEN_PLUGINS)
async def test_a_plugin_that_fails_at_start_ends_it(tmp_path, install, hook):
    call, text = BROKEN_PLUGINS[hook]
    install(
        "broken",
        "from rmq.plugin import hookimpl\n"
        f"@hookimpl\ndef rmq_setup(broker, register):\n    {call}\n",
    )
    async with refused(PluginError, text), running_node(tmp_path / "s"):
        pass
    assert_nothing_left(tmp_path / "s")
    disabled = {"plugins.disabled": "broken"}
    async with running_node(tmp_path / "s", disabled) as node:
        assert node.broker.context.store.durability.is_writable


async def test_a_service_that_fails_stops_the_broker_in_order(tmp_path, install):
    install(
        "failing",
        "import trio\nfrom rmq.plugin import hookimpl\n"
        "async def fail():\n    await trio.sleep(0.05)\n    raise LookupError('gone')\n"
        "@hookimpl\ndef rmq_setup(register):\n    register.service(fail)\n",
    )
    node = running_node(tmp_path / "s")
    async with refused(PluginError, "plugin failing: the service"), node:
        await trio.sleep(10)
    assert_nothing_left(tmp_path / "s")


async def test_a_listener_that_fails_stops_the_broker_in_order(tmp_path, install):
    install(
        "deaf",
        "from rmq.plugin import hookimpl\n"
        "def listen(arrived):\n    raise LookupError('gone')\n"
        "@hookimpl\ndef rmq_setup(register):\n    register.arrivals(listen)\n",
    )
    text = "plugin deaf: a listener of arrivals failed: LookupError('gone')"
    async with refused(PluginError, text), running_node(tmp_path / "s") as node:
        async with RawClient.connect(node.address) as client:
            with contextlib.suppress(PeerClosed):
                await send(client)
        await trio.sleep(10)
    assert_nothing_left(tmp_path / "s")


async def test_who_waits_for_the_end_hears_the_error_also_with_metrics(
    tmp_path, install
):
    """The command cancels all when the broker has finished."""
    install(
        "ending",
        "import trio\nfrom rmq.plugin import hookimpl\n"
        "async def fail():\n    await trio.sleep(0.05)\n    raise LookupError('gone')\n"
        "@hookimpl\ndef rmq_setup(register):\n    register.service(fail)\n",
    )
    values = SMALL_SETTINGS | {
        "storePathRootDir": str(tmp_path / "s"),
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": "0",
    }
    configs = build(BrokerConfig, values), build(StoreConfig, values)
    async with refused(PluginError, "plugin ending: "), trio.open_nursery() as nursery:
        plugins = PluginSet()
        plugins.load()
        run = functools.partial(run_broker, *configs, plugins=plugins, values=values)
        node = await nursery.start(run)
        await node.finished.wait()
        nursery.cancel_scope.cancel()
    assert_nothing_left(tmp_path / "s")


async def test_a_service_that_may_fail_is_started_again(
    tmp_path, install, autojump_clock
):
    install(
        "restarting",
        "from rmq.plugin import hookimpl\n"
        "async def fail():\n    fail.times += 1\n    raise LookupError('gone')\n"
        "fail.times = 0\n"
        "@hookimpl\ndef rmq_setup(register):\n"
        "    register.service(fail, restart=True)\n",
    )
    async with running_node(tmp_path / "s"):
        service = sys.modules["broken_restarting"].fail
        await trio.sleep(2.5)
        assert service.times == 3
    assert_nothing_left(tmp_path / "s")


async def test_a_silent_name_server_does_not_hold_the_start(tmp_path, caplog):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
    with trio.fail_after(10):
        async with (
            running_node(tmp_path, {"namesrvAddr": address}) as node,
            RawClient.connect(node.address) as client,
        ):
            assert (await send(client)).code == ResponseCode.SUCCESS
    assert any(address in record.getMessage() for record in caplog.records)


HELD_PULL = {
    "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "1",
    "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0",
    "suspendTimeoutMillis": "20000", "subscription": "*", "subVersion": "0",
}  # fmt: skip


async def test_a_stop_answers_held_pulls_and_leaves_the_routes(tmp_path):
    async with running_name_server(tmp_path / "n") as names:
        settings = {"namesrvAddr": names.name_servers[0]}
        async with (
            running_node(tmp_path / "s", settings) as node,
            RawClient.connect(node.address) as client,
        ):
            await send(client)
            pull = Command.request(RequestCode.PULL_MESSAGE)
            pull.ext_fields = HELD_PULL
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stop_soon, node)
                answer = await client.call(pull)
            assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert names.name_server.routes.group("broker-test") is None
    assert_nothing_left(tmp_path / "s")


async def stop_soon(node):
    await trio.sleep(0.1)
    node.stop()


async def test_tables_are_saved_by_a_stop(tmp_path):
    async with running_node(tmp_path) as node:
        async with RawClient.connect(node.address) as client:
            await send(client)
        node.broker.context.offsets.commit("c", "G", "T", 0, 7)
        node.broker.context.groups.find("G")
    async with running_node(tmp_path) as node:
        context = node.broker.context
        assert context.topics.get("T").write_queue_nums == 4
        assert context.offsets.query("G", "T", 0) == 7
        assert context.groups.get("G") is not None
        assert context.store.reads.max_offset("T", 0) == 1


async def test_sync_flush_answers_when_the_log_is_durable(tmp_path):
    async with running_node(tmp_path, {"flushDiskType": "SYNC_FLUSH"}) as node:
        store = node.broker.context.store
        async with RawClient.connect(node.address) as client:
            for n in range(1, 4):
                answer = await send(client)
                assert answer.code == ResponseCode.SUCCESS
                assert answer.ext_fields["queueOffset"] == str(n - 1)
                assert store.positions.durable.value == store.log.end_offset


async def test_under_sync_flush_a_held_pull_gets_what_is_durable(tmp_path):
    async with running_node(tmp_path, {"flushDiskType": "SYNC_FLUSH"}) as node:
        store = node.broker.context.store
        async with (
            RawClient.connect(node.address) as client,
            RawClient.connect(node.address) as consumer,
            trio.open_nursery() as nursery,
        ):
            assert (await send(client)).code == ResponseCode.SUCCESS
            for offset in range(1, 4):
                pull = Command.request(RequestCode.PULL_MESSAGE)
                pull.ext_fields = {**PULL_FIELDS, "queueOffset": str(offset)}
                nursery.start_soon(send_later, client)
                with trio.fail_after(3):
                    answer = await consumer.call(pull)
                assert answer.code == ResponseCode.SUCCESS
                assert store.positions.durable.value == store.log.end_offset


@pytest.mark.slow
@pytest.mark.usefixtures("without_ring")  # with one: tests/crash/test_file_systems.py
async def test_sync_flush_says_so_when_the_disk_takes_too_long(tmp_path, monkeypatch):
    """The Python handler's answer and the compiled one's; both are stored."""
    settings = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "60"}
    async with running_node(tmp_path, settings) as node:
        store = node.broker.context.store
        async with RawClient.connect(node.address) as client:
            assert (await send(client)).code == ResponseCode.SUCCESS
            flush, may_flush = store.durability.flush, threading.Event()
            monkeypatch.setattr(store.durability, "flush", lambda: may_flush.wait(20))
            for n in range(1, 3):
                answer = await send(client)
                assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
                assert answer.ext_fields["queueOffset"] == str(n)
            monkeypatch.setattr(store.durability, "flush", flush)
            may_flush.set()
            assert (await send(client)).code == ResponseCode.SUCCESS


async def test_with_a_staging_pool_a_pull_gets_what_is_committed(tmp_path):
    settings = {"transientStorePoolEnable": "true", "commitIntervalCommitLog": "20"}
    async with running_node(tmp_path, settings) as node:
        store = node.broker.context.store
        async with RawClient.connect(node.address) as client:
            for _ in range(3):
                assert (await send(client)).code == ResponseCode.SUCCESS
            pull = Command.request(RequestCode.PULL_MESSAGE)
            pull.ext_fields = {**PULL_FIELDS, "queueOffset": "0"}
            with trio.fail_after(10):
                answer = await client.call(pull)
            assert answer.code == ResponseCode.SUCCESS
            assert store.reads.max_offset("T", 0) > 0
    assert not (tmp_path / "abort").exists()
    async with running_node(tmp_path) as node:
        assert node.broker.context.store.reads.max_offset("T", 0) == 3


async def test_the_fast_port_takes_sends_and_no_pulls(tmp_path):
    async with running_node(tmp_path) as node:
        address = f"127.0.0.1:{node.broker.fast_port}"
        async with RawClient.connect(address) as client:
            assert (await send(client)).code == ResponseCode.SUCCESS
            pull = await client.call(Command.request(RequestCode.PULL_MESSAGE))
            assert pull.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
