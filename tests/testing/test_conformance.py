"""check_plugin finds what would hurt a broker or its users."""

from dataclasses import dataclass
from types import ModuleType

import pytest

from rmq.broker.context import PutInterceptor
from rmq.config import option
from rmq.errors import PluginError
from rmq.hookspecs import hookimpl
from rmq.testing import check_plugin

pytestmark = pytest.mark.slow


def plugin(**hooks):
    module = ModuleType("checked")
    for name, hook in hooks.items():
        setattr(module, name, hookimpl(hook))
    return module


def handling(handler):
    def rmq_handlers(broker, register):
        register(30_001, handler)

    return plugin(rmq_handlers=rmq_handlers)


def test_a_good_plugin_is_told_what_it_offers():
    info = check_plugin(
        handling(lambda request, connection: request.reply(body=request.body)),
        name="good",
    )
    assert info.name == "good"
    assert info.codes == (30_001,)
    assert info.hooks == ("rmq_handlers",)


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


def test_hooks_that_are_wrong():
    def rmq_handlers(register):
        pass

    with pytest.raises(PluginError, match=r"takes \(register\), not \(broker, reg"):
        check_plugin(plugin(rmq_handlers=rmq_handlers))
    with pytest.raises(PluginError, match="no hook rmq_handler"):
        check_plugin(plugin(rmq_handler=rmq_handlers))
    with pytest.raises(PluginError, match="it has no hook"):
        check_plugin(ModuleType("empty"))
    unmarked = ModuleType("unmarked")
    unmarked.rmq_services = lambda broker: []
    with pytest.raises(PluginError, match="not marked"):
        check_plugin(unmarked)


def test_gifts_that_are_wrong():
    @dataclass(frozen=True)
    class Options:
        many: int = option(5, key="many", doc="how many")

    def rmq_config(register):
        register(Options)

    def rmq_put_interceptors(broker):
        return [PutInterceptor(frozenset(), lambda message: None)]

    def rmq_arrival_listeners(broker):
        return ["listen"]

    with pytest.raises(PluginError, match=r"many of many does not start with plugin\."):
        check_plugin(plugin(rmq_config=rmq_config))
    with pytest.raises(PluginError, match="no PutInterceptor with triggers"):
        check_plugin(plugin(rmq_put_interceptors=rmq_put_interceptors))
    with pytest.raises(PluginError, match="cannot be called"):
        check_plugin(plugin(rmq_arrival_listeners=rmq_arrival_listeners))
