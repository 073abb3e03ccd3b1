"""A compiled handler in a distribution of its own, which cimports native.pxd."""

import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from rmq._fastpath.log.watermark import Watermark
from rmq._fastpath.reactor.native import NativeHandler
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode

ROOT = Path(__file__).resolve().parents[2]

SOURCE = """
from libc.string cimport memcpy
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, Conn, DECLINED, Frame, HELD, NativeHandler, SERVED, Verdict
)

cdef class Echo(NativeHandler):
    cdef public bytes reply
    cdef readonly int polls
    cdef public bint is_broken
    cdef public long watermark

    def __init__(self):
        NativeHandler.__init__(self, ("mode", "text"), ("text",), CONTRACT_VERSION)

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        cdef unsigned char mode
        if frame.fields[0].size != 1:
            return DECLINED
        mode = frame.fields[0].data[0]
        if mode == 115:
            memcpy(conn.ready.end, frame.body, frame.body_size)
            conn.ready.end += frame.body_size
            return SERVED
        if mode == 104:
            memcpy(conn.ready.end, frame.body, frame.body_size)
            conn.ready.end += frame.body_size
            conn.watermark = 100
            return HELD
        return DECLINED

    cdef bint end_of_poll(self) noexcept nogil:
        self.polls += 1
        return not self.is_broken
"""


@pytest.fixture(scope="module")
def echo_class(tmp_path_factory):
    folder = tmp_path_factory.mktemp("native")
    (folder / "rmq_test_echo.pyx").write_text(SOURCE)
    subprocess.run(
        [sys.executable, "-m", "cython", "-3", "-I", str(ROOT), "rmq_test_echo.pyx"],
        cwd=folder,
        check=True,
    )
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    subprocess.run(
        [
            "cc", "-O1", "-shared", "-fPIC", "-I", sysconfig.get_path("include"),
            "rmq_test_echo.c", "-o", f"rmq_test_echo{suffix}",
        ],
        cwd=folder,
        check=True,
    )  # fmt: skip
    sys.path.insert(0, str(folder))
    try:
        import rmq_test_echo
    finally:
        sys.path.remove(str(folder))
    return rmq_test_echo.Echo


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(5)
    yield ours, theirs
    theirs.close()


def request(mode: str, text: str, body: bytes, code: int = 77) -> bytes:
    command = Command.request(code, body=body)
    command.ext_fields = {"mode": mode, "text": text}
    return encode(command)


def answer(text: str) -> bytes:
    return encode(Command.request(1).reply(remark=text))


@pytest.mark.slow
@pytest.mark.parametrize("code", [77, 200_050], ids=["dense", "sparse"])
def test_served_held_and_declined(echo_class, pair, code):
    ours, theirs = pair
    reactor, handler, durable = Reactor(), echo_class(), Watermark()
    reactor.held.attach(durable)
    reactor.natives.register(0, code, handler)
    reactor.connections.add(ours.detach())
    theirs.sendall(
        request("s", "one", answer("served"), code)
        + request("h", "two", answer("held"), code)
        + request("d", "three", b"", code)
        + request("s", "four", answer("never"), code)
    )
    reactor.poll(0)
    events = reactor.take_events()
    assert len(events) == 2, "a declined frame and the one behind it"
    reactor.flush()
    assert [c.remark for c in FrameDecoder().feed(theirs.recv(4096))] == ["served"]
    assert reactor.held.count == 1
    assert durable.wait_for_request()
    durable.advance(100)
    reactor.poll(1)
    assert [c.remark for c in FrameDecoder().feed(theirs.recv(4096))] == ["held"]
    assert handler.polls == 1
    assert reactor.natives.counts() == {(0, code): (2, {"unusual": 1})}


@pytest.mark.slow
def test_held_too_long_is_handed_back(echo_class, pair):
    ours, theirs = pair
    reactor = Reactor()
    reactor.held.attach(Watermark(), 70)
    reactor.natives.register(0, 77, echo_class())
    token = reactor.connections.add(ours.detach())
    theirs.sendall(request("h", "x", answer("late")))
    reactor.poll(0)
    assert reactor.expire_held(69) == []
    assert reactor.expire_held(70) == [(token, answer("late"), 10)]
    assert reactor.held.count == 0


@pytest.mark.slow
def test_many_served_frames_leave_no_buffer_behind(echo_class, pair):
    ours, theirs = pair
    reactor = Reactor()
    reactor.natives.register(0, 77, echo_class())
    reactor.connections.add(ours.detach())
    frame, reply = request("s", "x", answer("ok")), answer("ok")
    for _ in range(200):
        theirs.sendall(frame * 50)
        received = 0
        while received < 50 * len(reply):
            reactor.poll(0)
            received += len(theirs.recv(1 << 20))
    assert not reactor.has_events
    assert reactor.natives.counts()[0, 77] == (10_000, {})
    (times,) = reactor.rpc_times.rows()
    assert (times.code, times.response, sum(times.counts)) == (77, 0, 10_000)


def test_other_contract_is_refused():
    with pytest.raises(ValueError, match="build the plugin again"):
        NativeHandler((), (), 999)


def test_varying_fields_are_among_the_fields():
    with pytest.raises(ValueError, match="not all among"):
        NativeHandler(("a",), ("b",), 1)


def test_base_handler_declines(pair):
    ours, theirs = pair
    reactor = Reactor()
    reactor.natives.register(0, 77, NativeHandler(("mode",), (), 4))
    with pytest.raises(ValueError, match="already"):
        reactor.natives.register(0, 77, NativeHandler((), (), 4))
    reactor.connections.add(ours.detach())
    theirs.sendall(request("s", "x", b"") + request("s", "y", b"", code=78))
    reactor.poll(0)
    assert len(reactor.take_events()) == 2
