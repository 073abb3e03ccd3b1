"""The log's next file cannot be made: answer, log and problems have the reason."""

import errno

import pytest

from rmq.observe.findings import find_problems
from rmq.observe.snapshot import take_snapshot
from rmq.protocol.codes import ResponseCode


def find_kinds(caller):
    problems = find_problems(take_snapshot(caller.broker, caller.broker.monitor))
    return {each.kind: each.message for each in problems}


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.EFBIG, "File too large"), (errno.ENOMEM, "Cannot allocate memory")],
)
def test_the_reason_is_everywhere(caller, monkeypatch, caplog, number, reason):
    def fail(*_arguments, **_options):
        raise OSError(number, reason)

    with monkeypatch.context() as patch:
        patch.setattr("rmq.store.allocate.MappedFile", fail)
        for _ in range(3):
            answer = caller.send()
            assert answer.code == ResponseCode.SYSTEM_ERROR
            start = "create mapped file failed, server is busy or broken."
            assert answer.remark.startswith(start)
            assert reason in answer.remark
        assert reason in find_kinds(caller)["put-error"]
        lines = [r for r in caplog.records if "no message can be stored" in r.message]
        assert len(lines) == 1
        assert reason in lines[0].message
    assert caller.send().code == 0
    assert "put-error" not in find_kinds(caller)
