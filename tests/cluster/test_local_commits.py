"""What a slave keeps of its consumers' commits, and what its master gets of it."""

import json

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.tables.offsets import OffsetTable
from rmq.cluster import local_commits
from rmq.cluster.local_commits import LocalCommits
from rmq.core.errors import ConnectFailed
from rmq.protocol.bodies.queues import ConsumerOffsetSerializeWrapper
from rmq.protocol.codes import RequestCode
from rmq.testing.clocks import ManualClock

KEY = "T@G"


def slave_in(folder):
    table = OffsetTable(folder, ManualClock(), 1)
    table.local_commits = LocalCommits(folder, ManualClock())
    return table


class Master:
    """Answers like a broker that has the offsets, and takes commits."""

    def __init__(self, offsets):
        self.offsets = offsets
        self.refuses = ""
        self.is_away = False

    def body(self):
        return ConsumerOffsetSerializeWrapper(offset_table={KEY: self.offsets}).encode()

    async def ask(self, address, request, timeout_ms):
        assert (address, request.code) == ("master", RequestCode.UPDATE_CONSUMER_OFFSET)
        if self.is_away:
            raise ConnectFailed("it is away")
        fields = request.ext_fields
        assert (fields["topic"], fields["consumerGroup"]) == ("T", "G")
        if self.refuses:
            return request.reply(code=1, remark=self.refuses)
        self.offsets[int(fields["queueId"])] = int(fields["commitOffset"])
        return request.reply()


def exchange(slave, master):
    slave.copy(master.body())
    trio.run(slave.local_commits.forward_commits, master.ask, "master")


QUEUES = st.integers(0, 2)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["here", "there", "exchange"]), QUEUES, st.integers(0, 9)
    ),
    max_size=30,
)


@given(STEPS)
def test_the_larger_of_both_unless_the_master_has_gone_on(tmp_path_factory, steps):
    slave, master = slave_in(tmp_path_factory.mktemp("slave")), Master({})
    here = {}
    for what, queue_id, offset in steps:
        if what == "here":
            slave.commit("a client", "G", "T", queue_id, offset)
            here[queue_id] = offset
        elif what == "there":
            master.offsets[queue_id] = offset
        else:
            wanted = master.offsets | {
                each: at
                for each, at in here.items()
                if at > master.offsets.get(each, -1)
            }
            exchange(slave, master)
            here.clear()
            assert slave.queues("G", "T") == master.offsets == wanted


def test_what_the_master_does_not_answer_stays_for_the_next_time(tmp_path):
    slave, master = slave_in(tmp_path), Master({0: 3})
    slave.commit("a client", "G", "T", 0, 8)
    master.is_away = True
    with pytest.raises(ConnectFailed):
        exchange(slave, master)
    assert slave.query("G", "T", 0) == 8
    master.is_away = False
    exchange(slave, master)
    assert master.offsets == {0: 8}


def test_what_the_master_refuses_is_given_up(tmp_path, caplog):
    slave, master = slave_in(tmp_path), Master({0: 3})
    slave.commit("a client", "G", "T", 0, 8)
    master.refuses = "no such group"
    exchange(slave, master)
    assert "T@G queue 0: 1 no such group" in caplog.text
    exchange(slave, master)
    assert slave.query("G", "T", 0) == 3


def test_a_part_of_many_is_given_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(local_commits, "FORWARD_LIMIT", 2)
    slave, master = slave_in(tmp_path), Master({})
    for queue_id in range(5):
        slave.commit("a client", "G", "T", queue_id, 1)
    for count in (2, 4, 5, 5):
        exchange(slave, master)
        assert len(master.offsets) == count


def test_the_file_has_them_until_they_are_given(tmp_path):
    slave, master = slave_in(tmp_path), Master({0: 3})
    slave.commit("a client", "G", "T", 0, 8)
    trio.run(slave.local_commits.save)
    path = tmp_path / "commitsHere.json"
    assert json.loads(path.read_text())["commitsHere"] == {KEY: {"0": 8}}
    again = LocalCommits(tmp_path, ManualClock())
    again.load()
    is_dropped = again.drop_up_to(KEY, 0, 7)
    assert is_dropped
    slave.local_commits = again
    exchange(slave, master)
    trio.run(again.save)
    assert json.loads(path.read_text())["commitsHere"] == {}
    assert master.offsets == {0: 8}


def test_offsets_that_are_gone_are_not_given(tmp_path):
    slave, master = slave_in(tmp_path), Master({})
    slave.commit("a client", "G", "T", 0, 8)
    slave.remove_group("G")
    exchange(slave, master)
    assert not master.offsets
