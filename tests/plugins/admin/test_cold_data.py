"""Thresholds for consumers of old messages, and how far the kernel reads ahead."""

import json

import pytest

from rmq.protocol.codes import RequestCode

UPDATE = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
REMOVE = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
SHOW = RequestCode.GET_COLD_DATA_FLOW_CTR_INFO
MODE = RequestCode.SET_COMMITLOG_READ_MODE


def thresholds(caller):
    return json.loads(caller.call(SHOW).body)["configTable"]


def test_thresholds_are_kept_and_shown(caller, caplog):
    assert caller.call(SHOW).body == (
        b'{"runtimeTable":{},"configTable":{},"cgColdReadThreshold":3145728,'
        b'"globalColdReadThreshold":104857600,"globalAcc":0}'
    ), "as Java answers"
    assert caller.call(UPDATE, body=b"A=1024\nB=2048\nC=many\nD=-1\n").code == 0
    assert thresholds(caller) == {"A": 1024, "B": 2048}
    assert "rmq slows no consumer down" in caplog.text
    for body in (b"A", b"A", b"unknown", b"\xff"):
        assert caller.call(REMOVE, body=body).code == 0
    assert thresholds(caller) == {"B": 2048}


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
    assert thresholds(caller) == {}


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"READ_AHEAD_MODE": "0"}, 0, "set commitlog readahead mode success, mode: 0"),
        ({"READ_AHEAD_MODE": "1"}, 0, "set commitlog readahead mode success, mode: 1"),
        (
            {"READ_AHEAD_MODE": "2"},
            29,
            "set commitlog readahead mode param value error",
        ),
        ({"READ_AHEAD_MODE": "x"}, 1, "set commitlog readahead mode failed"),
        ({}, 1, "set commitlog readahead mode failed"),
    ],
)
def test_read_ahead(caller, fields, code, remark):
    answer = caller.call(MODE, fields)
    assert (answer.code, answer.remark) == (code, remark)
    wanted = fields.get("READ_AHEAD_MODE") != "1"
    assert caller.broker.store.log.reads_ahead is wanted
