"""A handler may return anything: its caller gets an error, the broker goes on."""

from types import ModuleType

from rmq.plugin import hookimpl
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.frames import decode, encode
from rmq.remoting.dispatch import Held
from rmq.remoting.overload import NO_MEMORY
from rmq.testing import RawClient, running_node

RETURNED = {
    30_001: lambda request, connection: "hello",
    30_002: lambda request, connection: request.reply(body=5),
    30_003: lambda request, connection: Held(request.reply(), "soon", None, 10),
    30_004: lambda request, connection: request.reply(remark="\ud800"),
    30_005: lambda request, connection: request.reply(body=b"x" * (17 << 20)),
}


def exhausted(request, connection):
    raise MemoryError


def without_memory(body):
    """Read frames as a process that has no room for a body."""

    def read(frame):
        if body in frame:
            raise MemoryError
        return decode(frame)

    return read


async def test_a_request_without_memory_is_refused_with_a_reason(tmp_path, monkeypatch):
    module = ModuleType("large")

    @hookimpl
    def rmq_setup(register):
        register.handler(30_001, exhausted)

    module.rmq_setup = rmq_setup
    monkeypatch.setattr("rmq.remoting.dispatch.decode", without_memory(b"large"))
    async with (
        running_node(tmp_path, plugins={"large": module}) as node,
        RawClient.connect(node.address) as client,
    ):
        for request in (Command(30_001), Command(9_999, body=b"large")):
            answer = await client.call(request)
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, NO_MEMORY)
        assert (
            await client.call(Command(9_999))
        ).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_the_caller_is_told_and_the_next_one_served(tmp_path):
    module = ModuleType("bad")

    @hookimpl
    def rmq_setup(register):
        for code, handler in RETURNED.items():
            register.handler(code, handler)

    module.rmq_setup = rmq_setup
    async with (
        running_node(tmp_path, plugins={"bad": module}) as node,
        RawClient.connect(node.address) as client,
    ):
        for code in RETURNED:
            answer = await client.call(Command(code))
            assert answer.code == ResponseCode.SYSTEM_ERROR, code
            assert answer.remark, code
            await client.send_bytes(encode(Command(code, flag=FLAG_ONEWAY)))
        assert (
            await client.call(Command(9_999))
        ).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert client.pushed == []
