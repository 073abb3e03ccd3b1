"""A controller on a real socket, with brokers that say what Java's brokers say."""

import json
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
import trio

from rmq.access.config import AuthConfig
from rmq.access.request_gate import Kind
from rmq.controller.config import ControllerConfig
from rmq.controller.file_engine import FileEngine
from rmq.controller.handlers import ControllerHandlers, ControllerParts
from rmq.controller.leadership import Lead
from rmq.controller.liveness import Liveness
from rmq.controller.request_gate import KINDS, ControllerGate
from rmq.core.clock import SystemClock
from rmq.core.errors import ConfigError, EngineAway, RequestRejected
from rmq.protocol.bodies.controller import SyncStateSet
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.testing import RawClient, running_controller, running_name_server

from .engines import MemoryEngine, Shared


class Broker:
    """One connection to a controller, and a port for notices."""

    def __init__(self, client, broker_id, listener):
        self.client, self.broker_id = client, broker_id
        self.address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        self.listener = listener
        self.notices = []
        self.noticed = trio.Event()
        self.knocked = trio.Event()

    async def ask(self, code, body=b"", **fields):
        request = Command.request(code)
        request.ext_fields = {"clusterName": "C", "brokerName": "b"} | {
            name: str(value) for name, value in fields.items()
        }
        request.body = body
        return await self.client.call(request)

    async def start(self):
        """Take the id, register, send a heartbeat and ask for a master."""
        code = f"{self.address};1"
        answer = await self.ask(
            Code.CONTROLLER_APPLY_BROKER_ID,
            appliedBrokerId=self.broker_id,
            registerCheckCode=code,
        )
        assert answer.code == 0, answer.remark
        await self.register()
        assert (await self.beat()).remark == "Heart beat success"
        return await self.elect()

    async def register(self, **more):
        fields = {"brokerId": self.broker_id, "brokerAddress": self.address}
        return await self.ask(Code.CONTROLLER_REGISTER_BROKER, **(fields | more))

    async def beat(self, **more):
        fields = {
            "brokerId": self.broker_id, "brokerAddr": self.address, "epoch": 0,
            "maxOffset": 100, "heartbeatTimeoutMills": 10_000,
        }  # fmt: skip
        return await self.ask(Code.BROKER_HEARTBEAT, **(fields | more))

    async def elect(self, **more):
        fields = {"brokerId": self.broker_id, "designateElect": "false"}
        return await self.ask(Code.CONTROLLER_ELECT_MASTER, **(fields | more))

    async def join(self, ids, epoch=1, set_epoch=1):
        body = SyncStateSet(sync_state_set=ids, sync_state_set_epoch=set_epoch)
        return await self.ask(
            Code.CONTROLLER_ALTER_SYNC_STATE_SET,
            body.encode(),
            masterBrokerId=self.broker_id,
            masterEpoch=epoch,
        )

    async def listen(self):
        with suppress(trio.ClosedResourceError, ExceptionGroup):  # it dies
            await trio.serve_listeners(self.serve, [self.listener])

    async def serve(self, stream):
        self.knocked.set()
        decoder = FrameDecoder()
        async for data in stream:
            for command in decoder.feed(data):
                self.notices.append(command)
                await stream.send_all(encode(command.reply()))
                self.noticed.set()

    async def die(self):
        await self.listener.aclose()
        await self.client.stream.aclose()


@asynccontextmanager
async def brokers(node, *ids):
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        found = []
        for broker_id in ids:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            await stack.enter_async_context(listener)
            host, _, port = node.controller.address.rpartition(":")
            stream = await trio.open_tcp_stream(host, int(port))
            await stack.enter_async_context(stream)
            found.append(Broker(RawClient(stream), broker_id, listener))
            nursery.start_soon(found[-1].listen)
        yield found
        nursery.cancel_scope.cancel()


async def test_a_group_from_the_first_broker_to_the_second_master(tmp_path):
    async with running_controller(tmp_path) as node, brokers(node, 1, 2) as (a, b):
        elected = await a.start()
        assert (elected.code, elected.ext_fields["masterEpoch"]) == (0, "1")
        kept = await b.start()
        assert (kept.code, kept.ext_fields["masterAddress"]) == (2011, a.address)
        assert (await a.join([1, 2])).ext_fields["newSyncStateSetEpoch"] == "2"
        await a.die()
        with trio.fail_after(5):
            await b.noticed.wait()
        fields = b.notices[0].ext_fields
        assert b.notices[0].code == Code.NOTIFY_BROKER_ROLE_CHANGED
        assert fields["masterBrokerId"] == "2"
        assert (fields["masterEpoch"], fields["syncStateSetEpoch"]) == ("2", "3")
        assert SyncStateSet.decode(b.notices[0].body).sync_state_set == [2]
        info = await b.ask(Code.CONTROLLER_GET_REPLICA_INFO)
        assert info.ext_fields["masterAddress"] == b.address


async def test_a_connection_that_ends_while_the_port_is_open_elects_nobody(tmp_path):
    async with running_controller(tmp_path) as node, brokers(node, 1, 2) as (a, b):
        await a.start()
        await b.start()
        await a.join([1, 2])
        await a.client.stream.aclose()
        with trio.fail_after(5):
            await a.knocked.wait()
        info = await b.ask(Code.CONTROLLER_GET_REPLICA_INFO)
        assert info.ext_fields["masterBrokerId"] == "1"


async def test_groups_are_kept_over_a_restart(tmp_path):
    async with running_controller(tmp_path) as node, brokers(node, 1) as (a,):
        await a.start()
    async with running_controller(tmp_path) as node, brokers(node, 1, 2) as (a, b):
        info = await b.ask(Code.CONTROLLER_GET_REPLICA_INFO)
        assert info.ext_fields["masterEpoch"] == "1"
        # it has not heard of the master yet, and does not call it dead
        await b.ask(
            Code.CONTROLLER_APPLY_BROKER_ID,
            appliedBrokerId=2,
            registerCheckCode=f"{b.address};1",
        )
        await b.beat()
        assert (await b.elect()).code == 2011


async def test_the_log_names_a_state_that_was_older_than_its_members(tmp_path, caplog):
    """Both files are the same older copy; the members know a newer set."""
    async with running_controller(tmp_path) as node, brokers(node, 1, 2) as (a, b):
        await a.start()
        await b.start()
        assert (await a.join([1, 2])).code == 0
    async with running_controller(tmp_path) as node, brokers(node, 1, 2) as (a, b):
        await a.register()
        await b.register()
        await a.beat(epoch=1)
        await b.beat(epoch=2, rmqSet="2/5/2:2")
        await b.elect()
        info = await b.ask(Code.CONTROLLER_GET_REPLICA_INFO)
    assert info.ext_fields["masterAddress"] == b.address
    assert (
        "the state of b was doubtful, at epoch 1 and set 2; its members have reported, "
        "and it is at epoch 2 and set 6 now: brokers 2" in caplog.text
    )


async def test_a_controller_stops_while_brokers_are_connected(tmp_path):
    async with AsyncExitStack() as stack:
        async with running_controller(tmp_path) as node:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            await stack.enter_async_context(listener)
            host, _, port = node.controller.address.rpartition(":")
            stream = await trio.open_tcp_stream(host, int(port))
            await stack.enter_async_context(stream)
            broker = Broker(RawClient(stream), 1, listener)
            assert (await broker.start()).code == 0
        assert await stream.receive_some(1) == b""


async def test_one_folder_has_one_controller(tmp_path):
    async with running_controller(tmp_path):
        with pytest.raises(ConfigError, match="does another controller run there"):
            FileEngine(tmp_path)


def test_a_file_that_cannot_be_read_is_not_begun_anew(tmp_path):
    (tmp_path / "groups.json").write_text("{")
    with pytest.raises(EngineAway, match=r"groups\.json cannot be read"):
        FileEngine(tmp_path)


async def test_a_disk_that_takes_nothing_changes_nothing(tmp_path):
    async with running_controller(tmp_path) as node, brokers(node, 1) as (a,):
        await a.start()
        (tmp_path / "groups.2.json.tmp").mkdir()
        refused = await a.join([1, 9])
        assert refused.code == 2003
        answer = await a.ask(
            Code.CONTROLLER_APPLY_BROKER_ID, appliedBrokerId=2, registerCheckCode="h:2"
        )
        assert (answer.code, "cannot be written" in answer.remark) == (1, True)
        (tmp_path / "groups.2.json.tmp").rmdir()
        answer = await a.ask(Code.CONTROLLER_GET_NEXT_BROKER_ID)
        assert answer.ext_fields["nextBrokerId"] == "2"


async def test_heartbeats_of_strangers(tmp_path):
    async with running_controller(tmp_path) as node, brokers(node, 1) as (a,):
        assert (await a.beat()).code == 2010
        await a.start()
        assert (await a.beat(brokerId=9)).code == 2010
        elsewhere = await a.beat(brokerAddr="127.0.0.9:1")
        assert elsewhere.code == 2005
        assert f"is registered at {a.address}" in elsewhere.remark
        request = Command.request(Code.BROKER_HEARTBEAT)
        request.ext_fields = {"clusterName": "C", "brokerName": "b", "brokerAddr": "x"}
        answer = await a.client.call(request)
        assert answer.remark == "Heart beat with empty brokerId"


async def test_a_copied_identity_is_refused(tmp_path):
    async with running_controller(tmp_path) as node, brokers(node, 1) as (a,):
        await a.start()
        answer = await a.register(brokerAddress="127.0.0.1:1")
        assert "has a copy of its brokerIdentity file" in answer.remark


async def test_what_tools_ask(tmp_path):
    async with running_controller(tmp_path) as node, brokers(node, 1) as (a,):
        await a.start()
        meta = (await a.ask(Code.CONTROLLER_GET_METADATA_INFO)).ext_fields
        address = node.controller.address
        assert meta == {
            "group": "rmq-controller",
            "controllerLeaderId": address,
            "controllerLeaderAddress": address,
            "isLeader": "true",
            "peers": f"{address};",
        }
        data = await a.ask(Code.CONTROLLER_GET_SYNC_STATE_DATA, b'["b","nobody"]')
        assert list(json.loads(data.body)["replicasInfoTable"]) == ["b"]
        nothing = await a.ask(Code.CONTROLLER_GET_SYNC_STATE_DATA)
        assert (nothing.code, nothing.remark) == (1, "not set any response code")
        assert (await a.ask(Code.CONTROLLER_GET_SYNC_STATE_DATA, b"{}")).code == 1
        assert (await a.ask(Code.CLEAN_BROKER_DATA)).code == 2009
        forgotten = await a.ask(Code.CLEAN_BROKER_DATA, isCleanLivingBroker="true")
        assert forgotten.code == 0
        assert (await a.ask(Code.CONTROLLER_GET_REPLICA_INFO)).code == 2008


async def test_live_keys(tmp_path):
    path = tmp_path / "controller.conf"
    path.write_text("notifyBrokerRoleChanged=true\n")
    settings = {"configStorePath": str(path)}
    async with (
        running_controller(tmp_path / "state", settings) as node,
        brokers(node, 1) as (a,),
    ):
        code = Code.UPDATE_CONTROLLER_CONFIG
        assert (await a.ask(code, b"notifyBrokerRoleChanged=false")).code == 0
        assert not node.controller.config.notifies_brokers
        assert path.read_text() == "notifyBrokerRoleChanged=false\n"
        refused = await a.ask(code, b"configStorePath=x")
        assert refused.code == 16
        assert refused.remark.startswith("Can not update config in black list.")
        shown = await a.ask(Code.GET_CONTROLLER_CONFIG)
        assert b"notifyBrokerRoleChanged=false\n" in shown.body


async def test_a_controller_in_a_name_server(tmp_path):
    settings = {
        "enableControllerInNamesrv": "true",
        "rmq.controller.listenPort": "0",
        "controllerStorePath": str(tmp_path / "state"),
    }
    async with (
        running_name_server(tmp_path, settings) as node,
        brokers(node, 1) as (a,),
    ):
        assert (await a.start()).code == 0
        assert node.controller.config in node.configs()


async def test_a_second_controller_says_who_leads(tmp_path):
    one = Lead(MemoryEngine(Shared()), lambda: None)
    one.view.leader = "127.0.0.1:5"
    parts = ControllerParts(
        ControllerConfig(), one, Liveness(trio.current_time), None, lambda: "h:1", None
    )
    handlers = ControllerHandlers(parts)
    request = Command.request(Code.CONTROLLER_GET_METADATA_INFO)
    fields = handlers.metadata(request, None).ext_fields
    assert fields["controllerLeaderAddress"] == "127.0.0.1:5"
    assert fields["isLeader"] == "false"
    one.view.leader = "h:1"  # its own term that has ended
    assert "controllerLeaderAddress" not in handlers.metadata(request, None).ext_fields


# -- who may


class Connected:
    def __init__(self, host="10.1.2.3"):
        self.remote_address = f"{host}:1234"
        self.source_host = self.peer_host = host


def gate(tmp_path, auth=None, **config):
    return ControllerGate(
        ControllerConfig(**config),
        AuthConfig(**(auth or {})),
        tmp_path,
        SystemClock(),
        lambda _: False,
    )


def passes(one, code, host="10.1.2.3", **fields):
    try:
        one.check_request(Command(code, fields), Connected(host))
    except RequestRejected:
        return False
    return True


def test_every_request_has_a_kind():
    parts = ControllerParts(
        ControllerConfig(), None, None, None, lambda: "", lambda _: None
    )
    assert ControllerHandlers(parts).table().entries.keys() == set(KINDS)


def test_without_access_control_changes_come_from_this_host(tmp_path):
    one = gate(tmp_path)
    for code, kind in KINDS.items():
        assert passes(one, code) == (kind is not Kind.CHANGE)
        assert passes(one, code, "127.0.0.1")
    elect = Code.CONTROLLER_ELECT_MASTER
    assert passes(one, elect, designateElect="false")
    assert not passes(one, elect, designateElect="true")
    allowed = gate(tmp_path, controller_admin_from="10.0.0.0/8")
    assert passes(allowed, elect, designateElect="true")


def test_with_access_control_everything_but_the_way_to_the_leader_is_signed(tmp_path):
    one = gate(tmp_path, {"authentication_enabled": True})
    for code, kind in KINDS.items():
        assert passes(one, code, "127.0.0.1") == (kind is Kind.ROUTE)
    trusted = gate(
        tmp_path,
        {"authentication_enabled": True},
        controller_brokers_from="10.1.2.3",
    )
    for code, kind in KINDS.items():
        assert passes(trusted, code) == (kind is not Kind.CHANGE)


def test_a_host_does_not_speak_for_the_broker_of_another(tmp_path):
    one = gate(tmp_path)
    one.check_speaker("b 1", None, Connected())
    one.check_speaker("b 1", "10.1.2.3", Connected())
    with pytest.raises(RequestRejected, match=r"come from 10\.9\.9\.9"):
        one.check_speaker("b 1", "10.9.9.9", Connected())
    trusted = gate(tmp_path, controller_brokers_from="10.1.2.3")
    trusted.check_speaker("b 1", "10.9.9.9", Connected())


# -- keys


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"controller_group": "a/b"}, "write a name without /"),
        ({"controller_address": "host"}, "write host:port"),
        ({"controller_admin_from": "x"}, "rmq.controller.adminFrom"),
    ],
)
def test_keys_that_cannot_work(keys, what):
    with pytest.raises(ConfigError, match=what):
        ControllerConfig(**keys)


def test_endpoints_of_etcd():
    config = ControllerConfig(etcd_endpoints="http://a:1/, https://b:2")
    assert config.etcd_addresses() == ("http://a:1", "https://b:2")
    with pytest.raises(ConfigError, match="b:2 is no address like"):
        ControllerConfig(etcd_endpoints="http://a:1,b:2").etcd_addresses()


def test_the_address_for_others():
    assert ControllerConfig().reachable_at(7) == "127.0.0.1:7"
    everywhere = ControllerConfig(bind_address="0.0.0.0")
    with pytest.raises(ConfigError, match=r"set rmq\.controller\.address"):
        everywhere.reachable_at(7)
    named = ControllerConfig(bind_address="0.0.0.0", controller_address="h:9")
    assert named.reachable_at(7) == "h:9"
