"""Every option has a docstring, and docs/reference/python-client.md has them all."""

import inspect
from pathlib import Path

import pytest

import rmq.client
from rmq.client import blocking, document

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/python-client.md"
KINDS = inspect.Parameter


def parameters_of(function):
    found = inspect.signature(function).parameters.values()
    return [each for each in found if each.name not in ("self", "task_status")]


def documented():
    for name in document.CLASSES:
        kind = document.public_class(name)
        yield name, kind
        for method, member in document.methods_of(kind):
            if inspect.isfunction(member) and hasattr(kind, "public_names"):
                yield f"{name}.{method}", member


@pytest.mark.parametrize(("name", "found"), list(documented()))
def test_every_option_has_its_line(name, found):
    """Another default, or an option without a line, is a failure."""
    options = document.options_of(found.__doc__)
    parameters = parameters_of(found)
    assert [each.name for each in options] == [each.name for each in parameters]
    for option, parameter in zip(options, parameters, strict=True):
        default = None
        if parameter.default is not KINDS.empty:
            default = repr(parameter.default)
        assert option.default == default, option.name
        assert option.kind
        assert option.effect.endswith(".")


def test_a_time_or_a_size_has_its_unit():
    units = {"_ms": "milliseconds", "_s": "seconds", "_bytes": "bytes"}
    for _, found in documented():
        for option in document.options_of(found.__doc__):
            for suffix, unit in units.items():
                if option.name.endswith(suffix):
                    assert unit in option.kind, option.name


def test_the_page_is_what_the_program_prints():
    assert PAGE.read_text() == document.print_page(), (
        "python -m rmq.client.document > docs/reference/python-client.md"
    )


def test_every_public_name_is_on_the_page():
    page = PAGE.read_text()
    others = {"Hook", "MessageQueue", "SendStatus", "Sql"}
    assert {each for each in rmq.client.__all__ if f" {each}\n" not in page
            and f"`{each}`" not in page} <= others  # fmt: skip


TWINS = ("Client", "Producer", "Consumer", "MessageTrace")
ONLY_ASYNC = {"aclose", "serve", "start"}


@pytest.mark.parametrize("name", TWINS)
def test_the_class_for_threads_has_everything(name):
    original, ours = getattr(rmq.client, name), getattr(blocking, name)
    assert inspect.signature(ours) == inspect.signature(original)
    assert ours.__doc__ == original.__doc__
    for member in original.public_names - ONLY_ASYNC:
        found = inspect.getattr_static(original, member, None)
        twin = inspect.getattr_static(ours, member, None)
        if found is None or isinstance(found, property):
            # None is an attribute that __init__ sets
            assert isinstance(twin, property), member
        else:
            wanted = [each.replace(annotation=0) for each in parameters_of(found)]
            have = [each.replace(annotation=0) for each in parameters_of(twin)]
            assert have == wanted, member
            assert twin.__doc__ == found.__doc__, member
    assert ours.public_names == (original.public_names - ONLY_ASYNC) | {
        "close",
        "start",
    }


@pytest.mark.parametrize("name", TWINS)
def test_completion_shows_public_names_only(name):
    for module in (rmq.client, blocking):
        arguments = ["127.0.0.1:9"] + ["group"] * (name == "Consumer")
        made = getattr(module, name)(*arguments)
        shown = {each for each in dir(made) if not each.startswith("__")}
        assert shown == type(made).public_names
        assert all(inspect.getdoc(getattr(type(made), each, 0)) for each in shown)


def test_the_module_shows_its_public_names_only():
    shown = {each for each in dir(rmq.client) if not each.startswith("_")}
    assert shown == {*rmq.client.__all__, "blocking"}
    names = {}
    exec("from rmq.client import *", names)
    assert set(names) - {"__builtins__"} == set(rmq.client.__all__)


@pytest.mark.parametrize("module", [rmq.client, blocking])
def test_repr_says_what_it_is(module):
    consumer = module.Consumer("a:1;b:2", "billing", ["Orders", "Bills"])
    text = repr(consumer)
    assert all(each in text for each in ("billing", "Orders", "Bills", "a:1;b:2"))
    assert "not open" in text
    assert "payments" in repr(module.Producer("a:1", group="payments"))
    assert "a:1" in repr(module.Client("a:1"))
