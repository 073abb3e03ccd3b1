"""What a slave copies from its master beside the log, and when it takes that."""

import pytest
import trio

from rmq.cluster.group_role import GroupRole
from rmq.cluster.slave_synchronize import (
    LOG_END,
    LOG_LIMIT_S,
    CopiedTable,
    SlaveSynchronizer,
)
from rmq.config.broker import BrokerConfig
from rmq.protocol.codes import RequestCode
from rmq.store.config import BrokerRole, StoreConfig
from tests.cluster.test_pair import ask, context_of

DELAYS = RequestCode.GET_ALL_DELAY_OFFSET


class Slave:
    """Tables of a master whose log ends at 100; the log here grows by hand."""

    def __init__(self, told="100"):
        self.end, self.taken = 60, []
        self._told = told
        role = self.role = GroupRole(
            BrokerConfig(broker_id=1), StoreConfig(broker_role=BrokerRole.SLAVE)
        )
        self._tables = SlaveSynchronizer(
            role, self._ask, is_copy=lambda: True, safe_offset=lambda: self.end
        )

    async def _ask(self, _address, request, _timeout_ms):
        answer = request.reply(body=b"offsets")
        if self._told is not None and LOG_END in request.ext_fields:
            answer.ext_fields[LOG_END] = self._told
        return answer

    def add(self):
        self._tables.add("offsets", DELAYS, self.taken.append)
        self.run = self._tables.run

    async def copy(self, **more):
        table = CopiedTable("offsets", DELAYS, self.taken.append, **more)
        await self._tables.copy(table)
        return table


async def test_offsets_wait_for_the_log_that_they_speak_of(autojump_clock, nursery):
    """Else a slave that becomes the master thinks that this was delivered."""
    slave = Slave()
    nursery.start_soon(slave.copy)
    await trio.sleep(1)
    assert slave.taken == []
    slave.end = 100
    await trio.sleep(1)
    assert slave.taken == [b"offsets"]


@pytest.mark.parametrize(
    ("told", "more"),
    [("60", {}), (None, {}), ("much", {}), ("100", {"follows_log": 0})],
)
async def test_other_tables_are_taken_at_once(autojump_clock, told, more):
    """Also those of Java, which does not tell where its log ends."""
    slave = Slave(told)
    await slave.copy(**more)
    assert slave.taken == [b"offsets"]
    assert trio.current_time() == 0


async def test_an_acting_master_copies_nothing(autojump_clock, nursery):
    """A master that comes back first takes what was delivered here."""
    slave = Slave("60")
    slave.role.set_master("127.0.0.1:10911", "127.0.0.1:10912")
    slave.role.set_acting(is_acting=True)
    slave.add()
    nursery.start_soon(slave.run)
    await trio.sleep(10)
    assert slave.taken == []
    slave.role.set_acting(is_acting=False)
    await trio.sleep(0.1)  # at once: readers may come to the master now
    assert b"offsets" in slave.taken


async def test_a_log_that_does_not_come_is_named(autojump_clock):
    slave = Slave()
    table = await slave.copy()
    assert slave.taken == []
    assert trio.current_time() == pytest.approx(LOG_LIMIT_S)
    assert table.error == "the log of this broker has not reached 100 in 30 s"


def test_a_master_tells_with_offsets_where_its_log_ends_if_asked(rmq_broker):
    rmq_broker.send("T", b"body")
    end = context_of(rmq_broker).store.log.end_offset
    wanted = {LOG_END: "wanted"}
    for code in (RequestCode.GET_ALL_CONSUMER_OFFSET, DELAYS):
        assert ask(rmq_broker, code, wanted).ext_fields[LOG_END] == str(end)
        assert LOG_END not in ask(rmq_broker, code).ext_fields
    topics = ask(rmq_broker, RequestCode.GET_ALL_TOPIC_CONFIG, wanted)
    assert LOG_END not in topics.ext_fields
