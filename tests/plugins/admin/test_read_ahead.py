"""How far the kernel reads ahead in the log."""

import pytest

from rmq.protocol.codes import RequestCode

MODE = RequestCode.SET_COMMITLOG_READ_MODE


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
        ({"READ_AHEAD_MODE": "1" * 19}, 1, "set commitlog readahead mode failed"),
        ({}, 1, "set commitlog readahead mode param error"),
    ],
)
def test_read_ahead(caller, fields, code, remark):
    answer = caller.call(MODE, fields)
    assert (answer.code, answer.remark) == (code, remark)
    wanted = fields.get("READ_AHEAD_MODE") != "1"
    assert caller.broker.store.log.reads_ahead is wanted
