"""Reports of exporters, and log files that are kept for them."""

import json

import pytest

from rmq.protocol.codes import OwnRequestCode, ResponseCode
from rmq_plugins.export.positions import MAX_EXPORTERS, ExportPositions

REPORT = OwnRequestCode.REPORT_EXPORT


def known(answer):
    assert answer.code == 0, answer.remark
    return json.loads(answer.body)["exporters"]


def test_reports_are_noted_and_told(caller, clock):
    caller.send(body=bytes(100))
    end = caller.broker.store.log.end_offset
    assert known(caller.call(REPORT)) == {}
    caller.call(REPORT, {"exporter": "lake", "offset": end})
    caller.send(body=bytes(100))
    clock.ms += 250
    grown = caller.broker.store.log.end_offset - end
    caller.call(REPORT, {"exporter": "copy", "offset": 0})
    assert known(caller.call(REPORT)) == {
        "lake": {"offset": end, "lagBytes": grown, "silentMs": 250},
        "copy": {"offset": 0, "lagBytes": end + grown, "silentMs": 0},
    }


@pytest.mark.parametrize(
    ("fields", "code", "word"),
    [
        ({"exporter": "../x", "offset": 0}, ResponseCode.INVALID_PARAMETER, "name"),
        ({"exporter": "x" * 128, "offset": 0}, ResponseCode.INVALID_PARAMETER, "name"),
        ({"exporter": "x"}, ResponseCode.INVALID_PARAMETER, "is not in this log"),
        (
            {"exporter": "x", "offset": -1},
            ResponseCode.INVALID_PARAMETER,
            "is not in this log",
        ),
        ({"exporter": "x", "offset": 1}, ResponseCode.INVALID_PARAMETER, "ends at 0"),
        (
            {"exporter": "x", "forget": "true"},
            ResponseCode.QUERY_NOT_FOUND,
            "no exporter",
        ),
    ],
)
def test_what_is_no_report_is_refused(caller, fields, code, word):
    answer = caller.call(REPORT, fields)
    assert (answer.code, word in answer.remark) == (code, True), answer.remark
    assert known(caller.call(REPORT)) == {}


def test_the_table_has_a_limit(caller):
    for number in range(MAX_EXPORTERS):
        known(caller.call(REPORT, {"exporter": f"e{number}", "offset": 0}))
    refused = caller.call(REPORT, {"exporter": "more", "offset": 0})
    assert "remove one" in refused.remark
    known(caller.call(REPORT, {"exporter": "e0", "offset": 0}))
    known(caller.call(REPORT, {"exporter": "e0", "forget": "true"}))
    known(caller.call(REPORT, {"exporter": "more", "offset": 0}))


def test_a_restart_forgets_nobody(tmp_path, clock):
    positions = ExportPositions(tmp_path, clock)
    assert positions.find_min_offset() is None
    positions.record_offset("lake", 700)
    positions.record_offset("copy", 300)
    assert positions.find_min_offset() == 300
    positions.write(positions.snapshot())
    again = ExportPositions(tmp_path, clock)
    again.load()
    assert again.describe_exporters(1_000) == positions.describe_exporters(1_000)
    again.forget_exporter("copy")
    assert again.find_min_offset() == 700


@pytest.mark.parametrize("is_held", [True, False])
def test_the_log_is_kept_only_if_that_is_configured(broker, make_caller_of, is_held):
    values = {"rmq.exportHold": str(is_held).lower()}
    caller = make_caller_of(broker, values=values)
    known(caller.call(REPORT, {"exporter": "lake", "offset": 0}))
    needed_from = broker.store.cleaner.needed_from
    assert (needed_from is not None and needed_from() == 0) == is_held
