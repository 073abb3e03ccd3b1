"""Configuration in effect and runtime facts."""

import base64
import json
import os

import pytest
import trio

from rmq.protocol.bodies.common import KVTable
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import decode
from rmq_plugins.admin.rates import Counts, Rates, StoreRates
from tests.golden.recordings import read_rows

DAY_MS = 86_400_000


def facts(caller):
    return json.loads(caller.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]


def test_configuration_is_shown_as_properties(caller):
    answer = caller.call(RequestCode.GET_BROKER_CONFIG)
    lines = answer.body.decode().splitlines()
    assert "brokerName=broker-a" in lines
    assert "autoCreateTopicEnable=true" in lines
    assert "flushDiskType=ASYNC_FLUSH" in lines
    keys = [line.partition("=")[0] for line in lines]
    assert keys == sorted(keys)
    assert set(json.loads(answer.ext_fields["version"])) == {
        "counter",
        "stateVersion",
        "timestamp",
    }


def test_java_names_are_all_there(caller, golden):
    frames = read_rows(golden / "frames" / "mqadmin55-brokerStatus.jsonl")
    (raw,) = [frame["raw"] for frame in frames if frame.get("re") == 28]
    java = KVTable.decode(decode(base64.b64decode(raw)).body).table
    missing = set(java) - set(facts(caller))
    assert all(
        name.startswith(("commitLogDiskRatio_", "scheduleMessageOffset_"))
        for name in missing
    )


def test_counts_of_the_store(caller):
    assert facts(caller)["earliestMessageTimeStamp"] == "-1"
    caller.send(body=b"x")
    caller.send(body=b"y")
    caller.pull()
    shown = facts(caller)
    assert shown["putMessageTimesTotal"] == "2"
    assert shown["msgPutTotalTodayNow"] == "2"
    assert shown["msgGetTotalTodayNow"] == "2"
    assert shown["commitLogMaxOffset"] == str(caller.broker.store.log.end_offset)
    assert shown["earliestMessageTimeStamp"] == str(caller.broker.clock.now_ms())
    assert shown["brokerVersionDesc"] == "V5_5_0"


def test_rates_under_both_spellings(caller, clock):
    for _ in range(20):
        caller.send()
    clock.ms += 10_000
    shown = facts(caller)
    assert shown["putTps"] == "2.0 2.0 2.0"
    assert shown["getTransferredTps"] == shown["getTransferedTps"]  # codespell:ignore


def test_runtime_is_written_as_java_does(caller, clock):
    clock.ms += DAY_MS + 3_723_000
    assert facts(caller)["runtime"] == "[ 1 days, 1 hours, 2 minutes, 3 seconds ]"


def test_rates_over_three_windows():
    rates = Rates(Counts(0))
    for second in range(1, 701):
        rates.add(Counts(second * 1_000, put=min(second, 690)))
    now = Counts(700_000, put=690)
    assert rates.format_rates("put", now) == "0.0 0.831 0.983"


def test_totals_at_midnight(clock):
    rates = Rates(Counts(clock.ms))
    rates.add(Counts(clock.ms + DAY_MS, user_put=5, user_transferred=2))
    rates.add(Counts(clock.ms + DAY_MS + 1, user_put=6, user_transferred=3))
    assert rates.totals == (0, 5, 0, 2)
    rates.add(Counts(clock.ms + 2 * DAY_MS, user_put=9, user_transferred=4))
    assert rates.totals == (5, 9, 2, 4)


def test_totals_of_the_day_leave_out_system_topics(caller):
    caller.send(properties="DELAY\x013\x02")
    caller.pull("SCHEDULE_TOPIC_XXXX", queueId=2)
    shown = facts(caller)
    assert shown["msgPutTotalTodayNow"] == shown["msgGetTotalTodayNow"] == "0"
    assert shown["putMessageTimesTotal"] == "1"


def test_the_capacity_includes_what_only_root_may_use(caller):
    disk = os.statvfs(caller.broker.store_config.root_path)
    gib = 1 << 30
    total, free = disk.f_blocks * disk.f_frsize, disk.f_bfree * disk.f_frsize
    expected = f"Total : {total / gib:.1f} GiB, Free : {free / gib:.1f} GiB."
    assert facts(caller)["commitLogDirCapacity"] == expected


async def test_service_samples_once_a_second(caller, clock, autojump_clock):
    service = caller.find(StoreRates).sample_every_second
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service)
        for _ in range(3):
            caller.send()
            clock.ms += 1_000
            await trio.sleep(1.01)
        nursery.cancel_scope.cancel()
    answer = await caller.serve(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
    assert json.loads(answer.body)["table"]["putTps"].split()[0] == "1.0"


@pytest.mark.parametrize("code", [26, 28])
def test_questions_without_fields(caller, code):
    assert caller.call(code, {"unknown": "x"}, b"body").code == 0


def test_frames_of_compiled_handlers_are_counted(broker, make_caller_of):
    counts = {("main", 11): (5, {"not in memory": 2})}
    broker.native_counts = lambda: counts
    shown = facts(make_caller_of(broker))
    assert shown["rmq.native.main.11.served"] == "5"
    assert shown["rmq.native.main.11.declined.not-in-memory"] == "2"


def test_capacities_are_java_s_because_alerts_divide_by_them(caller):
    found = facts(caller)
    assert found["sendThreadPoolQueueCapacity"] == "10000"
    assert found["EndTransactionThreadPoolQueueCapacity"] == "100000"
