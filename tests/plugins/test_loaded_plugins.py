"""Request 20001 tells what is loaded."""

from rmq.plugins import PluginInfo
from rmq.protocol.bodies.plugins import LoadedPluginsBody
from rmq.protocol.codes import OwnRequestCode


def test_plugins_are_listed_in_the_order_of_loading(caller):
    caller.broker.plugins = (
        PluginInfo("send", "0.1.0", ("rmq_handlers",), (10, 310)),
        PluginInfo("shout", "7", ("rmq_handlers", "rmq_services"), (30_001,)),
    )
    answer = caller.call(OwnRequestCode.GET_LOADED_PLUGINS)
    assert answer.code == 0
    first, second = LoadedPluginsBody.decode(answer.body).plugins
    assert (first.name, first.version, first.codes) == ("send", "0.1.0", [10, 310])
    assert second.hooks == ["rmq_handlers", "rmq_services"]
