"""Plugins: discovery from installed packages, refusals that name the plugin."""

import sys
from types import SimpleNamespace

import pytest

from rmq.errors import ConfigError, PluginError
from rmq.hookspecs import hookimpl
from rmq.plugins import PluginSet


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs a plugin where nothing else is installed."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delenv("RMQ_LOAD_PLUGINS", raising=False)

    def call(name, text):
        module = f"plugin_under_test_{name}"
        (tmp_path / f"{module}.py").write_text(text)
        info = tmp_path / f"{module}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {module}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[rmq.plugins]\n{name} = {module}\n")

    yield call
    for module in [m for m in sys.modules if m.startswith("plugin_under_test_")]:
        del sys.modules[module]


def claimer(code, **more):
    """A plugin that claims one code."""

    @hookimpl
    def rmq_handlers(broker, register):
        register(code, lambda request, connection: None, **more)

    return SimpleNamespace(rmq_handlers=rmq_handlers)


@pytest.mark.usefixtures("install")
def test_nothing_installed_is_refused_with_what_to_do():
    with pytest.raises(ConfigError, match=r"rmq\.plugins.*make dev"):
        PluginSet().load()


def test_plugins_load_in_the_order_of_names_with_their_version(install):
    install("b", "")
    install("a", "")
    plugins = PluginSet()
    plugins.load()
    loaded = [(info.name, info.version) for info in plugins.list()]
    assert loaded == [("a", "1.5"), ("b", "1.5")]


def test_a_disabled_plugin_is_not_even_imported(install):
    install("a", "raise RuntimeError")
    plugins = PluginSet()
    plugins.load("b, a")
    assert plugins.list() == []


def test_the_variable_names_the_only_ones(install, monkeypatch):
    install("a", "")
    install("b", "")
    monkeypatch.setenv("RMQ_LOAD_PLUGINS", " b ,c")
    plugins = PluginSet()
    plugins.load()
    assert [info.name for info in plugins.list()] == ["b"]


def test_a_plugin_that_cannot_be_imported_is_named(install):
    install("a", "raise RuntimeError('no luck')")
    with pytest.raises(PluginError, match=r"plugin a: cannot be loaded.*no luck"):
        PluginSet().load()


def test_a_misspelt_hook_gets_the_nearest_name(install):
    install("a", "def rmq_handler(broker, register): pass")
    with pytest.raises(PluginError, match=r"plugin a: .*did you mean rmq_handlers\?"):
        PluginSet().load()


def test_two_plugins_on_one_code_are_refused_unless_one_replaces():
    plugins = PluginSet()
    plugins.add(claimer(10), name="first")
    plugins.add(claimer(10), name="second")
    with pytest.raises(PluginError, match=r'second: .*replaces="first"'):
        plugins.claims(None)
    plugins = PluginSet()
    plugins.add(claimer(10), name="first")
    plugins.add(claimer(10, replaces="first", ports=("main",)), name="second")
    holders = {claim.ports: claim.plugin for claim in plugins.claims(None)}
    assert holders == {("main",): "second", ("fast",): "first"}


def test_a_name_is_given_once():
    plugins = PluginSet()
    plugins.add(claimer(10), name="first")
    with pytest.raises(PluginError, match="another plugin has this name"):
        plugins.add(claimer(11), name="first")


def test_a_compiled_handler_without_a_python_one_is_refused():
    plugins = PluginSet()

    @hookimpl
    def rmq_native_handlers(broker, register):
        register(10, "compiled")

    plugins.add(SimpleNamespace(rmq_native_handlers=rmq_native_handlers), name="n")
    with pytest.raises(PluginError, match="10 has no Python handler"):
        plugins.native_claims(None)
