"""What a broker asks name servers of others, when some of them are away or cut off."""

import pytest
import trio

from rmq.cluster.directory import Directory
from rmq.config.broker import BrokerConfig
from rmq.core.errors import ConnectFailed
from rmq.protocol.bodies.route import BrokerData, ClusterInfo, TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode

CONFIG = BrokerConfig(broker_name="b", broker_cluster_name="C")
MEMBERS = {0: "h:1", 2: "h:2"}


class NameServers:
    """Servers that answer, refuse, or are silent until the time-out."""

    def __init__(self, **moods):
        self.moods = moods
        self.asked = []

    def directory(self, config=CONFIG):
        return Directory(self.ask, self.moods, config, MEMBERS[0])

    async def ask(self, address, request, timeout_ms):
        self.asked.append(address)
        mood = self.moods[address]
        if mood == "silent":
            await trio.sleep(timeout_ms / 1_000)
            raise ConnectFailed(f"{address} did not answer")
        if mood == "away":
            raise ConnectFailed(f"{address} is away")
        if mood == "none":
            return request.reply(ResponseCode.TOPIC_NOT_EXIST)
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return request.reply(body=TopicRouteData().encode())
        group = BrokerData(cluster="C", broker_name="b", broker_addrs=MEMBERS)
        info = ClusterInfo(broker_addr_table={"b": group})
        return request.reply(body=info.encode())


async def test_one_that_is_cut_off_costs_a_moment(autojump_clock):
    """It was asked alone for 24 s: no slave could follow a new master for so long."""
    directory = NameServers(a="silent", b="well").directory()
    assert await directory.other_members() == {2: "h:2"}
    assert trio.current_time() < 1
    assert await directory.master_of("b") == "h:1"
    assert await directory.route("T") == TopicRouteData()
    assert trio.current_time() < 2


async def test_the_next_one_is_not_asked_for_nothing(autojump_clock):
    servers = NameServers(a="well", b="well")
    await servers.directory().other_members()
    assert servers.asked == ["a"]
    servers = NameServers(a="away", b="well")
    await servers.directory().other_members()
    assert trio.current_time() == pytest.approx(0, abs=0.01)


async def test_nobody_answers(autojump_clock):
    servers = NameServers(a="silent", b="away")
    with pytest.raises(ConnectFailed, match="a did not answer"):
        await servers.directory().other_members()
    with pytest.raises(ConnectFailed, match="there is no name server"):
        await NameServers().directory().other_members()


async def test_a_route_that_only_one_knows(autojump_clock):
    servers = NameServers(a="none", b="well")
    directory = servers.directory()
    assert await directory.route("T") == TopicRouteData()
    servers.moods["b"] = "none"
    with pytest.raises(ConnectFailed, match="no name server has a route of topic T"):
        await directory.route("T")


async def test_a_group_of_another_cluster_is_none():
    servers = NameServers(a="well")
    other = BrokerConfig(broker_name="b", broker_cluster_name="D")
    assert await servers.directory(other).other_members() == {}
