"""Which controller a broker asks: the one that leads, of one group of controllers."""

import pytest

from rmq.cluster.config import ReplicationConfig
from rmq.cluster.controllers import Controllers, MixedControllers
from rmq.config.broker import BrokerConfig
from rmq.core.errors import ConnectFailed
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.controller import GetMetaDataResponseHeader
from rmq.testing import ManualClock

JAVA, RMQ, SECOND = "java:9878", "rmq:9878", "rmq2:9878"


class World:
    """Controllers by their addresses, that answer 1005, or are away."""

    def __init__(self):
        self.leaders = {JAVA: JAVA, RMQ: RMQ, SECOND: RMQ}
        self.groups = {JAVA: "DLedger", RMQ: "rmq", SECOND: "rmq"}
        self.away = set()
        self.asked = []

    async def ask(self, address, request, timeout_ms):
        assert request.code == RequestCode.CONTROLLER_GET_METADATA_INFO
        self.asked.append(address)
        if address in self.away:
            raise ConnectFailed(f"{address} is away")
        header = GetMetaDataResponseHeader(
            group=self.groups[address], controller_leader_address=self.leaders[address]
        )
        return request.reply(ResponseCode.SUCCESS, header=header)

    def controllers(self, *addresses):
        keys = ReplicationConfig(
            is_controlled=True, controller_addresses=";".join(addresses)
        )
        return Controllers(BrokerConfig(), keys, self.ask, "b:10911", ManualClock())


async def test_all_of_one_group_may_be_asked():
    world = World()
    controllers = world.controllers(SECOND, RMQ)
    await controllers.find_leader()
    assert controllers.leader == RMQ
    world.away, world.leaders[RMQ] = {SECOND}, SECOND
    await controllers.find_leader()
    assert controllers.leader == SECOND


async def test_controllers_of_java_and_of_rmq_are_refused_together():
    """Each would name a master of its own, and both would be obeyed by somebody."""
    controllers = World().controllers(JAVA, RMQ)
    for _ in range(2):
        with pytest.raises(MixedControllers) as error:
            await controllers.find_leader()
        said = str(error.value)
        assert JAVA in said
        assert RMQ in said
        assert "controllers of different groups" in said
        assert not controllers.leader


async def test_one_of_another_group_that_was_away_at_the_start_is_never_followed():
    world = World()
    world.away = {RMQ}
    controllers = world.controllers(JAVA, RMQ)
    await controllers.find_leader()
    assert controllers.leader == JAVA
    world.away = {JAVA}
    with pytest.raises(MixedControllers):
        await controllers.find_leader()
    assert controllers.leader == JAVA


async def test_who_does_not_tell_its_group_is_believed():
    world = World()
    world.groups[JAVA] = None
    controllers = world.controllers(JAVA, RMQ)
    await controllers.find_leader()
    assert controllers.leader == JAVA


async def test_nobody_leads():
    world = World()
    world.leaders[RMQ] = None
    with pytest.raises(ConnectFailed, match="no controller knows a leader"):
        await world.controllers(RMQ).find_leader()


async def test_an_answer_that_is_none():
    async def ask(address, request, timeout_ms):
        return Command.request(1).reply(ResponseCode.SYSTEM_ERROR, "no")

    keys = ReplicationConfig(is_controlled=True, controller_addresses=RMQ)
    controllers = Controllers(BrokerConfig(), keys, ask, "b:10911", ManualClock())
    with pytest.raises(ConnectFailed, match=r"rmq:9878 answers 1"):
        await controllers.find_leader()
