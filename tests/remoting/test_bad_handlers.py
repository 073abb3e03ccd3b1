"""A handler may return anything: its caller gets an error, the broker goes on."""

from types import ModuleType

from rmq.plugin import hookimpl
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.frames import encode
from rmq.remoting.dispatch import Held
from rmq.testing import RawClient, running_node

RETURNED = {
    30_001: lambda request, connection: "hello",
    30_002: lambda request, connection: request.reply(body=5),
    30_003: lambda request, connection: Held(request.reply(), "soon", None, 10),
    30_004: lambda request, connection: request.reply(remark="\ud800"),
    30_005: lambda request, connection: request.reply(body=b"x" * (17 << 20)),
}


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
            assert answer.code == 1, code
            assert answer.remark, code
            await client.send_bytes(encode(Command(code, flag=FLAG_ONEWAY)))
        assert (await client.call(Command(9_999))).code == 3
        assert client.pushed == []
