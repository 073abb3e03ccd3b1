"""Plugins: discovery, setup, registrations; whatever is wrong names the plugin."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmq.broker.no_access_control import AllRights
from rmq.core.errors import ConfigError, PluginError, RequestRejected
from rmq.plugin import Configuration, hookimpl, native, option
from rmq.plugin.native import NativeHandler
from rmq.plugin.register import Register
from rmq.plugin.registrations import Registrations
from rmq.plugin.registry import REPLACED_HOOKS, PluginSet

PLAIN = "from rmq.plugin import hookimpl\n@hookimpl\ndef rmq_setup(): pass\n"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs a plugin where nothing else is installed."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delenv("RMQ_LOAD_PLUGINS", raising=False)

    def call(name, text=PLAIN):
        module = f"plugin_under_test_{name}"
        (tmp_path / f"{module}.py").write_text(text)
        info = tmp_path / f"{module}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {module}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[rmq.plugins]\n{name} = {module}\n")

    yield call
    for module in [m for m in sys.modules if m.startswith("plugin_under_test_")]:
        del sys.modules[module]


class Plugin(SimpleNamespace):
    """A plugin that equals no other, like a module."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


def plugin(function, *, mark=hookimpl, **more):
    """A plugin whose setup is this function."""
    return Plugin(rmq_setup=mark(function), **more)


def claimer(code, **more):
    """A plugin that claims one code."""
    return plugin(lambda register: register.handler(code, print, **more))


def set_up(**plugins):
    """Set these plugins up; return what they registered."""
    loaded = PluginSet()
    loaded.add(plugins)
    registered = Registrations({"plugin.b.depth": "7"})
    loaded.set_up(None, registered)
    return registered


# -- discovery


@pytest.mark.usefixtures("install")
def test_nothing_installed_is_refused_with_what_to_do():
    with pytest.raises(ConfigError, match=r"rmq\.plugins.*make dev"):
        PluginSet().load()


def test_plugins_load_in_the_order_of_names_with_their_version(install):
    install("b")
    install("a")
    plugins = PluginSet()
    plugins.load()
    assert list(plugins.versions().items()) == [("a", "1.5"), ("b", "1.5")]


def test_a_disabled_plugin_is_not_even_imported(install):
    install("a", "raise RuntimeError")
    plugins = PluginSet()
    plugins.load("b, a")
    assert plugins.versions() == {}


def test_the_variable_names_the_only_ones(install, monkeypatch):
    install("a")
    install("b")
    monkeypatch.setenv("RMQ_LOAD_PLUGINS", " b ,c")
    plugins = PluginSet()
    plugins.load()
    assert list(plugins.versions()) == ["b"]


def test_a_plugin_that_cannot_be_imported_is_named(install):
    install("a", "raise RuntimeError('no luck')")
    with pytest.raises(PluginError, match=r"plugin a: cannot be loaded.*no luck"):
        PluginSet().load()


def test_a_name_is_given_once():
    plugins = PluginSet()
    plugins.add({"first": claimer(10)})
    with pytest.raises(PluginError, match="another plugin has this name"):
        plugins.add({"first": claimer(11)})


def test_a_plugin_has_one_name():
    only = claimer(10)
    with pytest.raises(PluginError, match="the plugin is loaded under another name"):
        PluginSet().add({"first": only, "second": only})


# -- the hook


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no function rmq_setup"),
        ("def rmq_setup(broker, register): pass", "not marked with @hookimpl"),
        ("def rmq_setp(broker, register): pass", "did you mean rmq_setup"),
        ("def rmq_wholly_else(broker): pass", "there is no hook rmq_wholly_else"),
        (
            "def rmq_handlers(broker, register): pass",
            r"rmq_handlers was removed: define rmq_setup\(broker, register\) and call "
            r"register\.handler\(code, handler\)",
        ),
        (PLAIN.replace("()", "(borker)"), "has the parameters borker"),
        (PLAIN.replace("()", "(*all)"), r"has the parameters \*all"),
        (PLAIN.replace("def", "async def"), "not a plain function"),
        (PLAIN.replace("pass", "yield"), "not a plain function"),
        (PLAIN.replace("hookimpl\ndef", "hookimpl(wrapper=True)\ndef"), "plain func"),
    ],
)
def test_a_function_that_only_looks_like_the_hook_is_refused(install, text, problem):
    install("a", text)
    with pytest.raises(PluginError, match=f"plugin a: .*{problem}"):
        PluginSet().load()


@pytest.mark.parametrize("hook", REPLACED_HOOKS)
def test_a_hook_that_is_gone_names_the_call_that_replaces_it(hook):
    old = SimpleNamespace(**{hook: hookimpl(lambda broker: [])})
    call = REPLACED_HOOKS[hook].partition("(")[0]
    with pytest.raises(PluginError, match=rf"rmq_setup.* register\.{call}\("):
        PluginSet().add({"a": old})
    assert callable(getattr(Register, call))


def test_a_setup_takes_what_it_needs():
    given = []
    set_up(
        a=plugin(lambda: given.append(())),
        b=plugin(lambda register: given.append(register.plugin)),
        c=plugin(lambda register, broker: given.append((register.plugin, broker))),
    )
    assert given == [(), "b", ("c", None)]


def test_a_compiled_setup_is_found():
    """A function of Cython is none of Python's."""

    class Compiled:
        def __call__(self, register):
            register.on_stop(print)

    function = Compiled()
    function.rmq_impl = hookimpl(lambda: None).rmq_impl
    assert len(set_up(a=SimpleNamespace(rmq_setup=function)).on_stop) == 1


def test_marks_order_the_setups():
    order = []

    def noting(name, mark=hookimpl):
        return plugin(lambda: order.append(name), mark=mark)

    set_up(
        late=noting("late", hookimpl(trylast=True)),
        a=noting("a"),
        b=noting("b"),
        early=noting("early", hookimpl(tryfirst=True)),
    )
    assert order == ["early", "a", "b", "late"]


# -- handlers


def contract_version():
    pxd = Path(native.__file__).parents[1] / "_fastpath/reactor/native.pxd"
    return int(re.search(r"CONTRACT_VERSION = (\d+)", pxd.read_text())[1])


@pytest.mark.parametrize("names", [("first", "second"), ("second", "first")])
def test_two_plugins_on_one_code_are_refused_unless_one_replaces(names):
    plugins = {"first": claimer(10), "second": claimer(10)}
    with pytest.raises(PluginError, match=rf'plugin {names[1]}: .*"{names[0]}"'):
        set_up(**{name: plugins[name] for name in names})
    plugins["second"] = claimer(10, replaces="first", ports=("main",))
    claims = set_up(**{name: plugins[name] for name in names}).claims
    holders = {port: claim.plugin for (port, _), claim in claims.items()}
    assert holders == {"main": "second", "fast": "first"}


def test_a_compiled_handler_serves_where_its_plugin_does():
    def rmq_setup(register):
        register.handler(10, print)
        register.native(10, lambda: NativeHandler((), (), contract_version()))

    made = list(set_up(a=plugin(rmq_setup)).made_natives())
    assert [(port, code) for port, code, _ in made] == [("main", 10), ("fast", 10)]
    assert made[0][2] is made[1][2]
    taken = set_up(a=plugin(rmq_setup), b=claimer(10, replaces="a", ports=("main",)))
    assert [port for port, _, _ in taken.made_natives()] == ["fast"]


# -- configuration


class Depth(Configuration):
    """A key of a plugin."""

    depth: int = option(5, key="plugin.b.depth", doc="a number", low=1, high=9)


def test_a_plugin_gets_its_keys_with_their_types():
    depths = []

    def rmq_setup(register):
        assert register.config(Depth) is register.config(Depth)
        depths.append(register.config(Depth).depth)

    set_up(b=plugin(rmq_setup, Depth=Depth))
    assert depths == [7]


def test_classes_of_one_name_are_two_configurations():
    class Config(Configuration):
        mine: str = option("c", key="plugin.c.mine", doc="a text")

    first = plugin(lambda register: register.config(Depth), Config=Depth)
    second = plugin(lambda register: register.config(Config), Config=Config)
    configs = set_up(b=first, c=second).configs
    assert {name for name, _ in configs} == {"b", "c"}


@pytest.mark.parametrize("key", ["plugin.b.depth", "maxMessageSize", "depth"])
def test_a_key_of_somebody_else_is_refused(key):
    class Depth(Configuration):
        depth: int = option(5, key=key, doc="a number")

    with pytest.raises(PluginError, match=rf"plugin c: .* {key} .* plugin\.c\."):
        PluginSet().add({"c": plugin(lambda: None, Depth=Depth)})


# -- errors name the plugin


def fail(*_):
    raise LookupError("gone")


@pytest.mark.parametrize(
    ("register_it", "call"),
    [
        (
            lambda register: register.interceptor({"a", "b"}, fail),
            lambda registered: registered.interceptors[0].intercept(None),
        ),
        (
            lambda register: (register.handler(1, print), register.native(1, fail)),
            lambda registered: list(registered.made_natives()),
        ),
        (
            lambda register: register.guard(fail),
            lambda registered: registered.guards[0](None, None),
        ),
        (
            lambda register: register.arrivals(fail),
            lambda registered: registered.listeners[0]({}),
        ),
        (
            lambda register: register.on_close(fail),
            lambda registered: registered.on_close[0](None),
        ),
        (
            lambda register: register.on_stop(fail),
            lambda registered: registered.on_stop[0](),
        ),
        (
            lambda register: register.on_config(fail),
            lambda registered: registered.on_config[0]([]),
        ),
        (
            lambda register: register.facts("x", fail),
            lambda registered: registered.facts["x"][1](),
        ),
        (
            lambda register: register.hold_log(fail),
            lambda registered: registered.needed_from(),
        ),
    ],
)
def test_a_function_that_fails_later_names_its_plugin(register_it, call):
    registered = set_up(broken=plugin(lambda register: register_it(register)))
    with pytest.raises(PluginError, match=r"plugin broken: .*LookupError\('gone'\)"):
        call(registered)


def test_two_plugins_with_rights_are_refused():
    def rmq_setup(register):
        register.guard(print, rights=AllRights())

    assert set_up(a=plugin(rmq_setup)).rights is not None
    with pytest.raises(PluginError, match="plugin b: the rights belong to plugin a"):
        set_up(a=plugin(rmq_setup), b=plugin(rmq_setup))


def test_a_refusal_is_no_failure():
    def refuse(_message):
        raise RequestRejected(13, "not this one")

    registered = set_up(a=plugin(lambda register: register.interceptor({"a"}, refuse)))
    with pytest.raises(RequestRejected, match="not this one"):
        registered.interceptors[0].intercept(None)


def test_a_call_after_the_setup_is_refused():
    kept = []
    set_up(a=plugin(lambda register: kept.append(register)))
    with pytest.raises(PluginError, match=r"plugin a: register\.on_stop was called af"):
        kept[0].on_stop(print)


# -- several plugins


def test_some_interceptors_come_first():
    def interceptor(name, **more):
        return plugin(lambda register: register.interceptor({name}, print, **more))

    registered = set_up(
        a=interceptor("a"),
        b=interceptor("b", first=True),
        c=interceptor("c", first=True),
    )
    order = ["".join(each.triggers) for each in registered.interceptors]
    assert order == ["b", "c", "a"]


def test_the_log_is_held_from_the_lowest_offset_on():
    def holder(offset):
        return plugin(lambda register: register.hold_log(lambda: offset))

    assert set_up(a=holder(None)).needed_from() is None
    plugins = {"a": holder(None), "b": holder(70), "c": holder(30)}
    assert set_up(**plugins).needed_from() == 30
