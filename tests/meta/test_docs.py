"""The documentation agrees with the code: plugins, keys, commands, shipped files."""

import inspect
import re
from pathlib import Path

import click
import pytest

from rmq.cli import main
from rmq.cluster.config import ReplicationConfig
from rmq.config.broker import BrokerConfig
from rmq.config.option import check_settings, options, read_properties
from rmq.controller.config import ControllerConfig
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.plugin import Register
from rmq.store.config import StoreConfig

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = (
    BrokerConfig,
    StoreConfig,
    ReplicationConfig,
    NamesrvConfig,
    NamesrvListenConfig,
    ControllerConfig,
)


def test_each_registration_is_documented_with_its_parameters():
    text = (ROOT / "docs/develop/plugins.md").read_text()
    calls = inspect.getmembers(Register, inspect.isfunction)
    public = {name: call for name, call in calls if not name.startswith("_")}
    assert len(public) == 19
    for name, call in public.items():
        parameters = [
            each.name if each.default is each.empty else f"{each.name}="
            for each in inspect.signature(call).parameters.values()
        ]
        shown = f"`register.{name}({', '.join(parameters[1:])})`"
        assert shown in text, shown


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.__name__)
def test_each_key_is_documented(config):
    text = (ROOT / "docs/reference/configuration.md").read_text()
    missing = [m.key for _, m in options(config) if f"`{m.key}`" not in text]
    assert not missing


SHIPPED = sorted(
    p for p in ROOT.glob("conf/**/*.*") if p.suffix in (".conf", ".properties")
)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_shipped_configuration_files_have_no_problem(path):
    problems = [
        f.text for f in check_settings(read_properties(path), CONFIGS) if f.is_problem
    ]
    assert not problems


def commands(group: click.Command, prefix: str = "rmq"):
    yield prefix, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None, name
            yield from commands(command, f"{prefix} {name}")


def test_each_command_has_help_and_is_documented():
    text = "".join(
        p.read_text() for p in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    )
    for name, command in commands(main):
        assert command.help or command.short_help, name
        assert name in text, name


def test_each_request_code_of_a_plugin_is_in_the_table():
    text = (ROOT / "docs/reference/requests.md").read_text()
    codes = set(re.findall(r"RequestCode\.(\w+)", plugin_sources()))
    missing = [name for name in sorted(codes) if name not in text]
    assert not missing


def plugin_sources() -> str:
    return "".join(
        path.read_text() for path in ROOT.glob("plugins/rmq_plugins/*/__init__.py")
    )
