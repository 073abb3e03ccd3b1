"""check_plugin finds what would hurt a broker or its users."""

from types import ModuleType, SimpleNamespace

import pytest

from rmq.core.errors import PluginError
from rmq.plugin import Configuration, hookimpl, option
from rmq.testing import check_plugin
from tests.plugins.conftest import PLUGINS

pytestmark = pytest.mark.slow


def plugin(function, **more):
    return SimpleNamespace(rmq_setup=hookimpl(function), **more)


def handling(handler):
    return plugin(lambda register: register.handler(30_001, handler))


def test_a_good_plugin_is_told_what_it_offers():
    info = check_plugin(
        handling(lambda request, connection: request.reply(body=request.body)),
        name="good",
    )
    assert info.name == "good"
    assert info.codes == (30_001,)
    assert info.registered == ("handler",)


@pytest.mark.parametrize("name", PLUGINS)
def test_the_plugins_of_rmq_are_good_ones(name):
    assert check_plugin(PLUGINS[name]).name == name


def test_a_handler_may_keep_a_request():
    check_plugin(handling(lambda request, connection: None))


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (lambda request, connection: request.reply(body=request.body[:1][0]), "Index"),
        (lambda request, connection: "hello", "is no answer"),
        (lambda request, connection: request.reply(body=5), "TypeError"),
        (lambda request, connection: request.reply(1), "without a remark"),
        (lambda request, connection: connection.close(), "close the connection"),
        (
            lambda request, connection: connection.send_nowait(request.reply()),
            "oneway",
        ),
    ],
)
def test_handlers_that_misbehave(handler, text):
    with pytest.raises(PluginError, match=text):
        check_plugin(handling(handler))


def test_a_plugin_that_stops_the_start_is_told_why():
    with pytest.raises(PluginError, match="has the parameters regster"):
        check_plugin(plugin(lambda regster: None))
    with pytest.raises(
        PluginError, match="plugin empty: the module has no function rmq_setup"
    ):
        check_plugin(ModuleType("empty"))
    with pytest.raises(PluginError, match=r'such as \{"level"\}, not \(\)'):
        check_plugin(plugin(lambda register: register.interceptor((), print)))
    with pytest.raises(PluginError, match="cannot be called"):
        check_plugin(plugin(lambda register: register.arrivals("listen")))


class Options(Configuration):
    """Keys that other plugins may have too."""

    many: int = option(5, key="plugin.many", doc="how many")


def test_a_key_without_the_name_of_its_plugin():
    text = r"the configuration key plugin\.many must start with plugin\.good\."
    with pytest.raises(PluginError, match=text):
        check_plugin(plugin(lambda: None, Options=Options), name="good")
