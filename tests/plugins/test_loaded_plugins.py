"""Request 20001 tells what is loaded."""

from types import SimpleNamespace

import rmq_plugins.send
from rmq.hookspecs import hookimpl
from rmq.protocol.bodies.plugins import LoadedPluginsBody
from rmq.protocol.codes import OwnRequestCode, RequestCode


def test_plugins_are_listed_in_the_order_of_loading(caller):
    @hookimpl
    def rmq_handlers(broker, register):
        register(30_001, print)

    @hookimpl
    def rmq_services(broker):
        return []

    shout = SimpleNamespace(rmq_handlers=rmq_handlers, rmq_services=rmq_services)
    plugins = caller.broker.plugins
    plugins.add(rmq_plugins.send, name="send")
    plugins.add(shout, name="shout")
    plugins.claims(caller.broker)
    answer = caller.call(OwnRequestCode.GET_LOADED_PLUGINS)
    assert answer.code == 0
    first, second = LoadedPluginsBody.decode(answer.body).plugins
    assert (first.name, first.version) == ("send", "unknown")
    assert {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2} <= {*first.codes}
    assert (second.name, second.codes) == ("shout", [30_001])
    assert second.hooks == ["rmq_handlers", "rmq_services"]
