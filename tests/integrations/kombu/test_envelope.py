"""Messages of kombu as bodies and properties."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.integrations.kombu.envelope import (
    Times,
    due_ms_of,
    pack,
    priority_of,
    properties_of,
    unpack,
)

NOW_MS = 1_700_000_000_000
NATIVE = Times(is_native=True, max_delay_ms=100_000)


def message(body=b"[1]", **headers):
    return {
        "body": body,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": headers,
        "properties": {"delivery_info": {"routing_key": "q"}, "priority": 3},
    }


def at(seconds):
    moment = dt.datetime.fromtimestamp(NOW_MS / 1_000 + seconds, dt.UTC)
    return moment.isoformat()


@given(st.binary(max_size=64), st.dictionaries(st.text(), st.integers() | st.text()))
def test_a_message_comes_back_as_it_went(body, headers):
    raw = message(body, **headers)
    assert unpack(pack(raw)) == raw


def test_the_body_is_one_line_of_json_and_the_raw_body():
    line, _, body = pack(message(id="x")).partition(b"\n")
    assert line.startswith(b'["application/json","utf-8",{"id":"x"},')
    assert body == b"[1]"


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"{}\nx", b'["a"]\nx', b"\xff\xfe", b"[1,2,{},{}]\nx"]
)
def test_a_body_of_another_program_is_delivered_whole(data):
    raw = unpack(data)
    assert raw["body"] == data
    assert raw["headers"] == {}
    assert raw["properties"] == {"delivery_info": {}}


def test_a_task_has_its_id_as_key():
    assert properties_of(message(id="task-1"), "", NOW_MS, NATIVE) == {"KEYS": "task-1"}
    assert properties_of(message(id="a\x01b"), "k", NOW_MS, NATIVE) == {"TAGS": "k"}


def test_an_eta_becomes_a_time_of_the_broker_one_second_earlier():
    found = properties_of(message(eta=at(10)), "", NOW_MS, NATIVE)
    assert found == {"TIMER_DELIVER_MS": str(NOW_MS + 9_000)}


def test_an_eta_that_is_far_away_waits_the_longest_time():
    found = properties_of(message(eta=at(10_000)), "", NOW_MS, NATIVE)
    assert found == {"TIMER_DELIVER_MS": str(NOW_MS + 100_000)}


@pytest.mark.parametrize("eta", [at(0.5), at(-10), "tomorrow", 17, None])
def test_an_eta_without_a_wait_has_no_time(eta):
    assert properties_of(message(eta=eta), "", NOW_MS, NATIVE) == {}


def test_without_native_eta_the_worker_waits():
    times = Times(is_native=False, max_delay_ms=1)
    assert properties_of(message(eta=at(10)), "", NOW_MS, times) == {}


def test_an_eta_without_a_zone_is_utc():
    assert due_ms_of(message(eta="2023-11-14T22:13:20")) == NOW_MS


@pytest.mark.parametrize(
    ("priority", "queue"), [(None, 0), (3, 3), (99, 9), (-1, 0), ("x", 0), ("4", 4)]
)
def test_the_priority_is_the_queue(priority, queue):
    raw = message()
    raw["properties"]["priority"] = priority
    assert priority_of(raw, 10) == queue
