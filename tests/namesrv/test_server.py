"""A name server on a real socket: departures are noticed, frames are answered."""

import trio

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.testing import ManualClock, RawClient, running_name_server

BROKER = {
    "brokerName": "a",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "C",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
}


def request(code, **fields):
    command = Command.request(code)
    command.ext_fields = fields
    return command


async def is_gone(routes):
    with trio.fail_after(5):
        while routes.group("a") is not None:
            await trio.lowlevel.checkpoint()


async def test_a_closed_connection_removes_its_broker(tmp_path):
    async with running_name_server(tmp_path) as names:
        routes = names.name_server.routes
        async with RawClient.connect(names.name_servers[0]) as broker:
            answer = await broker.call(request(RequestCode.REGISTER_BROKER, **BROKER))
            assert answer.code == 0
            assert routes.group("a").addresses == {0: "10.0.0.1:10911"}
        await is_gone(routes)


async def test_a_silent_broker_is_removed_by_the_scan(tmp_path):
    clock = ManualClock()
    settings = {"scanNotActiveBrokerInterval": "100"}
    async with (
        running_name_server(tmp_path, settings, clock=clock) as names,
        RawClient.connect(names.name_servers[0]) as broker,
    ):
        await broker.call(
            request(
                RequestCode.REGISTER_BROKER, heartbeatTimeoutMillis="1000", **BROKER
            )
        )
        clock.ms += 1_001
        await is_gone(names.name_server.routes)


async def test_a_jump_of_the_clock_removes_nobody(tmp_path, caplog):
    clock = ManualClock()
    settings = {"scanNotActiveBrokerInterval": "100"}
    async with (
        running_name_server(tmp_path, settings, clock=clock) as names,
        RawClient.connect(names.name_servers[0]) as broker,
    ):
        routes = names.name_server.routes
        await broker.call(request(RequestCode.REGISTER_BROKER, **BROKER))
        clock.set_back_ms -= 3_600_000
        with trio.fail_after(5):
            while "the clock jumped by 3600 s" not in caplog.text:
                await trio.lowlevel.checkpoint()
        assert routes.expire() == []
        assert routes.group("a") is not None


async def test_unregistering_takes_effect_before_its_answer(tmp_path):
    async with (
        running_name_server(tmp_path) as names,
        RawClient.connect(names.name_servers[0]) as broker,
    ):
        await broker.call(request(RequestCode.REGISTER_BROKER, **BROKER))
        await broker.call(request(RequestCode.UNREGISTER_BROKER, **BROKER))
        assert names.name_server.routes.group("a") is None


async def test_an_unknown_code_is_answered_as_java_does(tmp_path):
    async with (
        running_name_server(tmp_path) as names,
        RawClient.connect(names.name_servers[0]) as client,
    ):
        answer = await client.call(request(9_999))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == " request type 9999 not supported"


async def test_a_guessed_address_becomes_the_one_that_was_reached(tmp_path):
    async with (
        running_name_server(tmp_path) as names,
        RawClient.connect(names.name_servers[0]) as client,
    ):
        names.name_server.mark_guessed(BROKER["brokerAddr"])
        await client.call(request(RequestCode.REGISTER_BROKER, **BROKER))
        told = await client.call(request(RequestCode.GET_BROKER_CLUSTER_INFO))
        assert b'"127.0.0.1:10911"' in told.body


async def test_an_unregistration_with_another_id_removes_nobody(tmp_path):
    """It comes from a broker that had the address before, or has a wrong id."""
    async with (
        running_name_server(tmp_path) as names,
        RawClient.connect(names.name_servers[0]) as broker,
    ):
        await broker.call(request(RequestCode.REGISTER_BROKER, **BROKER))
        other = {**BROKER, "brokerId": "1"}
        answer = await broker.call(request(RequestCode.UNREGISTER_BROKER, **other))
        assert answer.code == 0
        assert names.name_server.routes.group("a") is not None
