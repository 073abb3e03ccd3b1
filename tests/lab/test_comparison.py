"""The comparison of brokers: answers are counted, and the page gets its table."""

import socket
import struct
import threading

import pytest

pytest.importorskip("amqp", reason="the laboratories need it")

from lab import comparison
from lab.comparison import BEGIN, END, Redis, confirmed


def test_answers_are_counted_also_if_one_comes_in_two_parts():
    answer = b'MSG made 1 30\r\n{"stream":"S", "seq":1}\r\n'
    listener = socket.create_server(("127.0.0.1", 0))
    client = Redis(listener.getsockname()[1], "memory", 3)
    client.mark = b'"seq":'
    other, _ = listener.accept()
    half = answer.index(b"seq") + 1
    for part in (answer + answer[:half], answer[half:] + answer):
        other.sendall(part)
    receiver = threading.Thread(target=client.receive, args=(3,), daemon=True)
    receiver.start()
    receiver.join(5)
    assert not receiver.is_alive()
    for each in (client, other, listener):
        each.close()


def confirm(tag, *, is_multiple):
    payload = struct.pack(">HHQB", 60, 80, tag, is_multiple)
    return struct.pack(">BHI", 1, 1, len(payload)) + payload + b"\xce"


def test_a_confirm_may_be_for_several_messages():
    frames = confirm(4, is_multiple=False) + confirm(2, is_multiple=True)
    assert confirmed(frames + frames[:5], {1, 2, 3, 4}) == ({3}, frames[:5])
    assert confirmed(frames[5:0], {3}) == ({3}, b"")


def test_another_frame_than_a_confirm_is_an_error():
    payload = struct.pack(">HHH", 20, 40, 0) + bytes(5)
    frame = struct.pack(">BHI", 1, 1, len(payload)) + payload + b"\xce"
    with pytest.raises(AssertionError, match="20, 40"):
        confirmed(frame, {1})


def test_the_table_replaces_the_one_before():
    figures = {"start_s": 0.3, "memory_mib": 50.0}
    for case in comparison.CASES:
        figures |= {f"{case} rate": 1e5, f"{case} cpu_us": 2.0, f"{case} p50_us": 60.0}
    made = comparison.table({"later": {"rmq": figures}})
    assert "| on the disk later | rmq | 0.3 | 50 | 100,000 | 2.0 | 60 | 2 |" in made
    page = f"a\n{BEGIN}old\n{END}b\n"
    assert comparison.with_rates(page, made) == f"a\n{BEGIN}{made}{END}b\n"
