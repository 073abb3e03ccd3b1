"""A broker whose address space has an end: large requests are refused, it goes on."""

import contextlib
import resource
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from tests.cli.test_process import SEND, ask, process, until_ready

pytestmark = [pytest.mark.slow, pytest.mark.plain]

MIB = 1 << 20
SPARE = 40 * MIB
"""Room for some threads and for small requests, not for copies of frames of 16 MiB."""


UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
"""At the stop: a file of the index has 400 MB."""


def set_limit(child, spare):
    """Let the process have so much more memory than it has now."""
    with open(f"/proc/{child.pid}/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize() + spare
    resource.prlimit(child.pid, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))


def answer_of(address, request):
    """Send a request; what it was answered, or None if the connection was ended."""
    decoder = FrameDecoder()
    with socket.create_connection(address, 20) as peer:
        with contextlib.suppress(ConnectionError):
            peer.sendall(encode(request))
        with contextlib.suppress(ConnectionError):
            while data := peer.recv(65_536):
                if answers := decoder.feed(data):
                    return answers[0]
    return None


@pytest.mark.parametrize("spare", [SPARE, 24 * MIB, 4 * MIB])
def test_what_needs_too_much_is_refused_and_the_broker_goes_on(tmp_path, spare):
    with process(tmp_path) as child:
        ready = until_ready(child)[-1]
        address = "127.0.0.1", int(ready.split("address=127.0.0.1:")[1].split()[0])
        assert (
            ask(ready, Command(RequestCode.SEND_MESSAGE_V2, SEND, b"before")).code == 0
        )
        set_limit(child, spare)
        large = [
            Command(RequestCode.SEND_MESSAGE_V2, SEND, b"x" * (15 * MIB)),
            Command(9_999, {}, b"x" * (15 * MIB)),
            Command(
                RequestCode.HEART_BEAT,
                {},
                b'{"clientID":"c","more":[' + b"[]," * (4 * MIB) + b"[]]}",
            ),
            Command(
                RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "t" * (MIB // 2)}, b""
            ),
        ]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(partial(answer_of, address), large * 2))
        # what comes alone may be served
        refused = [each for each in answers if each is None or each.code]
        assert all(each is None or each.remark for each in refused)
        short = [each for each in refused if each is None or "memory" in each.remark]
        assert short, "the limit was not met"
        small = Command(RequestCode.SEND_MESSAGE_V2, SEND, b"after")
        assert ask(ready, small).code == 0
        resource.prlimit(child.pid, resource.RLIMIT_AS, UNLIMITED)
        child.terminate()
        assert child.wait(20) == 0, child.stderr.read()
