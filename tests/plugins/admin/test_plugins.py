"""Request 20001 lists the loaded plugins."""

from types import SimpleNamespace

from rmq.plugin import hookimpl
from rmq.protocol.bodies.plugins import LoadedPluginsBody
from rmq.protocol.codes import OwnRequestCode, RequestCode


@hookimpl
def rmq_setup(register):
    async def wait():
        pass

    register.handler(30_001, print)
    register.service(wait)


def test_plugins_are_listed_in_the_order_of_loading(broker, make_caller_of):
    shout = SimpleNamespace(rmq_setup=rmq_setup)
    caller = make_caller_of(broker, plugins={"shout": shout})
    answer = caller.call(OwnRequestCode.GET_LOADED_PLUGINS)
    assert answer.code == 0
    *others, last = LoadedPluginsBody.decode(answer.body).plugins
    (send,) = (each for each in others if each.name == "send")
    assert send.version == "unknown"
    assert {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2} <= {*send.codes}
    assert (last.name, last.codes) == ("shout", [30_001])
    assert last.registered == ["handler", "service"]
