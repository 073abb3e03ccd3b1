"""Groups that read old messages: what counts, who is slowed down, thresholds."""

import json

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.records import decode_stored
from rmq_plugins.consume.pull.cold_reads import (
    FORGET_MS,
    HOLD_S,
    ColdReads,
    GroupReads,
    PidFactor,
    is_system_group,
)
from tests.plugins.consume.pull.test_pull import subscribe

UPDATE = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
REMOVE = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
SHOW = RequestCode.GET_COLD_DATA_FLOW_CTR_INFO
COLD = {"limits_cold_reads": True, "hot_ratio": 0}
"""Every message is old: the hot end has no byte."""


@pytest.fixture
def cold_caller(make_caller):
    def make(store=COLD, **options):
        caller = make_caller(store=store, **options)
        for number in range(10):
            caller.send(body=b"%d" % number * 1_000)
        return caller

    return make


def shown(caller):
    return json.loads(caller.call(SHOW).body)


def test_thresholds_are_kept_and_shown(caller, caplog):
    assert caller.call(SHOW).body == (
        b'{"runtimeTable":{},"configTable":{},"cgColdReadThreshold":3145728,'
        b'"globalColdReadThreshold":104857600,"globalAcc":0}'
    ), "as Java answers"
    assert caller.call(UPDATE, body=b"A=1024\nB=2048\nC=many\nD=-1\n").code == 0
    assert shown(caller)["configTable"] == {"A": 1024, "B": 2048}
    assert "set coldDataFlowControlEnable=true" in caplog.text
    for body in (b"A", b"A", b"unknown", b"\xff"):
        assert caller.call(REMOVE, body=body).code == 0
    assert shown(caller)["configTable"] == {"B": 2048}


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"x" * 65_537, 29, "more than 65536 bytes"),
        (b"".join(b"g%d=1\n" % n for n in range(1_025)), 29, "at most 1024 groups"),
        (b"a=\\uZZZZ", 1, "string2Properties error"),
    ],
    ids=["long", "many", "broken"],
)
def test_thresholds_that_are_refused(caller, body, code, remark):
    answer = caller.call(UPDATE, body=body)
    assert answer.code == code
    assert remark in answer.remark
    assert shown(caller)["configTable"] == {}


def test_cold_messages_are_counted_by_group_and_in_all(cold_caller, clock):
    caller = cold_caller()
    size = len(caller.pull().body)
    assert shown(caller)["runtimeTable"] == {
        "G": {
            "coldAcc": size,
            "createTimeMills": clock.now_ms(),
            "lastColdReadTimeMills": clock.now_ms(),
        }
    }
    caller.pull(consumerGroup="H", offset=5)
    half = shown(caller)["runtimeTable"]["H"]["coldAcc"]
    assert half == size // 2
    assert shown(caller)["globalAcc"] == size + half


@pytest.mark.parametrize(
    "store",
    [
        {"limits_cold_reads": False, "hot_ratio": 0},
        {"limits_cold_reads": True, "hot_ratio": 26},
        {**COLD, "scans_cold_reads": True},
    ],
    ids=["off", "hot", "in memory"],
)
def test_other_messages_are_not_counted(cold_caller, store):
    caller = cold_caller(store, cg_cold_read_threshold=0)
    assert caller.pull().code == 0
    assert caller.pull().code == 0
    assert shown(caller)["runtimeTable"] == {}


def test_a_group_of_the_system_is_never_slowed(cold_caller):
    caller = cold_caller(cg_cold_read_threshold=0)
    for _ in range(2):
        assert caller.pull(consumerGroup="TOOLS_CONSUMER").code == 0
    assert shown(caller)["runtimeTable"] == {}
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert not is_system_group("CID_RMQ")


def test_a_slowed_group_of_push_consumers_is_refused_until_the_period_ends(
    cold_caller, clock
):
    caller = cold_caller(cg_cold_read_threshold=5_000)
    subscribe(caller)
    assert caller.pull().code == 0
    refused = caller.pull()
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert refused.remark == (
        "This consumer group is reading cold data. It has been flow control"
    )
    assert caller.pull(consumerGroup="H").code == 0, "another group is not"
    assert caller.pull(offset=10).code == 19, "the end of the queue is hot"
    assert caller.call(UPDATE, body=b"G=1000000\n").code == 0
    assert caller.pull().code == 0, "its own threshold is higher"
    caller.call(REMOVE, body=b"G")
    assert caller.pull().code == ResponseCode.SYSTEM_BUSY


def test_all_groups_are_slowed_if_they_read_too_much_together(cold_caller):
    caller = cold_caller(global_cold_read_threshold=20_000)
    for group in "GH":
        subscribe(caller, group=group)
        assert caller.pull(consumerGroup=group).code == 0
    assert caller.pull(consumerGroup="G").code == ResponseCode.SYSTEM_BUSY
    assert caller.pull(consumerGroup="H").code == ResponseCode.SYSTEM_BUSY
    assert caller.pull(consumerGroup="New").code == 0, "it has read nothing yet"


def test_a_slowed_consumer_that_pulls_by_itself_gets_one_message_later(
    cold_caller, monkeypatch
):
    waited = []

    async def sleep(seconds):
        waited.append(seconds)

    caller = cold_caller(cg_cold_read_threshold=5_000)
    assert len(decode_stored(caller.pull().body)) == 10
    monkeypatch.setattr("rmq_plugins.consume.pull.handler.trio.sleep", sleep)
    answer = caller.pull(offset=3)
    assert waited == [3.0]
    assert [record.body[:1] for record in decode_stored(answer.body)] == [b"3"]


@pytest.mark.parametrize("scans", [False, True])
def test_a_slowed_pull_of_messages_in_memory_loads_nothing(
    cold_caller, monkeypatch, scans
):
    """With `coldDataScanEnable` only messages that the disk had to give are counted."""

    async def sleep(seconds):
        assert seconds == HOLD_S

    monkeypatch.setattr("rmq_plugins.consume.pull.handler.trio.sleep", sleep)
    caller = cold_caller({**COLD, "scans_cold_reads": scans}, cg_cold_read_threshold=1)
    reads = caller.find(ColdReads)
    reads.reads["G"] = GroupReads(cold_acc=1)
    answer = caller.pull(offset=3)
    assert len(decode_stored(answer.body)) == 1
    assert reads.reads["G"].cold_acc == 1 + (0 if scans else len(answer.body))


def test_compiled_pulls_leave_cold_messages_to_python(cold_caller):
    caller = cold_caller()
    table = caller.broker.store.reads
    assert ColdReads(caller.broker).hot_window == 0
    assert table is not None
    object.__setattr__(caller.broker.store_config, "scans_cold_reads", True)
    assert ColdReads(caller.broker).hot_window is None
    object.__setattr__(caller.broker.store_config, "limits_cold_reads", False)
    assert ColdReads(caller.broker).hot_window is None


# -- periods


@pytest.fixture
def reads(make_caller):
    """The parts of a broker that adapts its thresholds, without the factor of PID."""

    def make(**options):
        options = {
            "cold_ctr_strategy_enable": True,
            "use_pid_cold_ctr_strategy": False,
            "cg_cold_read_threshold": 1_000,
            "global_cold_read_threshold": 10_000,
            **options,
        }
        return ColdReads(make_caller(**options).broker)

    return make


def read(reads, clock, **groups):
    for group, size in groups.items():
        found = reads.reads.setdefault(group, GroupReads())
        found.cold_acc += size
        found.last_cold_read_time_mills = clock.now_ms()
        reads.total += size


def test_a_period_ends_with_counts_of_zero_and_forgets_silent_groups(reads, clock):
    reads = reads(cold_ctr_strategy_enable=False)
    read(reads, clock, A=10)
    reads.end_period()
    assert (reads.total, reads.reads["A"].cold_acc) == (0, 0)
    clock.ms += FORGET_MS - 1
    reads.end_period()
    assert "A" in reads.reads
    clock.ms += 1
    reads.end_period()
    assert reads.reads == {}


def test_a_threshold_that_is_reached_grows_by_half_while_there_is_room(reads, clock):
    reads = reads()
    reads.thresholds["C"] = 1_000
    read(reads, clock, A=1_000, B=999, C=5_000)
    reads.end_period()
    assert reads.adapted == {"A": 1_500}
    read(reads, clock, A=1_500)
    reads.end_period()
    assert reads.adapted == {"A": 2_250}
    assert reads.threshold_of("A") == 2_250
    assert reads.threshold_of("B") == 1_000
    clock.ms += FORGET_MS
    reads.end_period()
    assert reads.adapted == {}


def test_the_three_highest_shrink_while_all_read_too_much(reads, clock):
    reads = reads()
    reads.adapted = {"A": 5_000, "B": 4_000, "C": 3_000, "D": 2_000, "E": 9_000}
    reads.thresholds["E"] = 1
    read(reads, clock, A=10_001)
    reads.end_period()
    assert reads.adapted == {"A": 4_000, "B": 3_200, "C": 2_400, "D": 2_000, "E": 9_000}
    reads.adapted = {"A": 1_100}
    read(reads, clock, A=10_001)
    reads.end_period()
    assert reads.adapted == {"A": 1_000}, "not below the common threshold"


def test_adapted_thresholds_end_with_the_strategy(reads):
    reads = reads(cold_ctr_strategy_enable=False)
    reads.adapted = {"A": 5_000}
    assert reads.threshold_of("A") == 1_000
    reads.end_period()
    assert reads.adapted == {}


def test_the_factor_is_javas():
    factor = PidFactor(800)
    for read_bytes in range(9):
        factor.add_period(read_bytes)
        assert factor.value() == 0
    factor.add_period(900)
    differences = [*range(800, 791, -1), -100]
    expected = 0.5 * -100 + 0.3 * sum(differences) + 0.2 * (-100 - 792)
    assert factor.value() == pytest.approx(expected)
    factor.add_period(10_000)
    assert factor.value() < 0


def test_the_factor_raises_and_lowers(reads, clock):
    reads = reads(use_pid_cold_ctr_strategy=True)
    for _ in range(9):
        read(reads, clock, A=1_000)
        reads.end_period()
    assert reads.adapted == {}
    read(reads, clock, A=1_000)
    reads.end_period()
    assert reads.adapted == {"A": 1_500}
    for _ in range(4):
        read(reads, clock, A=9_000, B=90_000)
        reads.end_period()
    assert reads.adapted == {"A": 1_000}
