"""A node works with every live number at its limits, changed over the wire or stored.

Pauses are at their shortest first, so that every task looks at its key while they are
at their longest.
"""

import pytest
import trio

from rmq.config.option import options
from rmq.protocol.codes import ResponseCode
from tests.broker.test_live_keys import calling
from tests.config.test_limits import numbers

REFUSALS = {0, 1, 14, 16, 17, 19, 22}
"""Answers of a broker that may be full, neither readable nor writable, or waiting."""


def limits_of(configs, name):
    """The live keys with their lowest or highest values."""
    return {
        mark.key: getattr(mark, name)
        for config in configs
        for mark in numbers(type(config))
        if mark.dynamic
    }


def defaults_of(configs, keys):
    return {
        mark.key: field.default
        for config in configs
        for field, mark in options(config)
        if mark.key in keys
    }


def split(node, values):
    """Those of the broker, and those of its name server."""
    own = {mark.key for _, mark in options(node.name_server.config)}
    return (
        {key: value for key, value in values.items() if key not in own},
        {key: value for key, value in values.items() if key in own},
    )


async def change(caller, values):
    broker, namesrv = split(caller.node, values)
    await caller.change(**broker)
    await caller.change("namesrv", **namesrv)


async def exercise(caller):
    """Everything that reads a live key while it serves."""
    with trio.fail_after(10):
        codes = {
            (await caller.send("T")).code,
            (await caller.send("T", TRAN_MSG="true", PGROUP="P", KEYS="k")).code,
            (await caller.pull("T")).code,
            (await caller.ask(12, topic="T", key="k", maxNum=32, beginTimestamp=0,
                              endTimestamp=2**60)).code,
            (await caller.ask(105, to="namesrv", topic="T")).code,
        }  # fmt: skip
        await trio.sleep(0.05)  # the tasks have a turn
    assert codes <= REFUSALS


async def works(caller):
    """Whether a send arrives; a disk that was full for 35 % is looked at each 10 s."""
    sent = await caller.send("T")
    while sent.code == ResponseCode.SERVICE_NOT_AVAILABLE and "disk" in sent.remark:
        await trio.sleep(0.5)
        sent = await caller.send("T")
    assert sent.code == 0, sent.remark
    offset = int(sent.ext_fields["queueOffset"])
    assert (await caller.pull("T", offset=offset)).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_node_lives_with_every_live_number_at_its_limits(tmp_path, flush):
    with trio.fail_after(60):
        async with calling(tmp_path, flushDiskType=flush) as caller:
            await caller.make_topic("T")
            await works(caller)
            configs = caller.node.configs()
            for name in ("low", "high", "low"):
                wanted = limits_of(configs, name)
                assert len(wanted) > 20
                await change(caller, wanted)
                await exercise(caller)
            await change(caller, defaults_of(configs, wanted))
            await works(caller)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["low", "high"])
async def test_a_node_starts_and_stops_with_every_live_number_at_its_limits(
    tmp_path, name
):
    with trio.fail_after(60):
        async with calling(tmp_path) as caller:
            configs = caller.node.configs()
        stored = {key: str(value) for key, value in limits_of(configs, name).items()}
        async with calling(tmp_path, **stored) as caller:
            await exercise(caller)
            await change(caller, defaults_of(configs, stored))
            await works(caller)
