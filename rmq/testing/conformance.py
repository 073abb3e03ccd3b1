"""check_plugin: does a plugin do what a broker expects of it?

The plugin is loaded into a real broker beside the built-in ones, and every request code
that it claims is asked with fields and bodies as a careless or hostile client sends
them.  What must hold:

    the hooks exist, have the parameters of their specification and are marked
    keys of its options start with `plugin.`
    handlers answer, hold back or reject; they never raise anything else
    oneway requests are not answered
    interceptors name their triggers; services are async and take no argument
    a compiled handler answers as the Python handler of its code does
    the broker starts with it and stops in order
"""

import contextlib
import dataclasses
import functools
import inspect
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import trio

from rmq import hookspecs
from rmq.broker.put import PutInterceptor
from rmq.config import options
from rmq.errors import PeerClosed, PluginError
from rmq.plugins import HOOK_PREFIX, PluginInfo
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.testing.peer import RawClient
from rmq.testing.threads import BrokerThread

ANSWER_LIMIT_S: Final = 0.25
"""A handler that says nothing for this long has kept the request, which it may."""

_HOSTILE_FIELDS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"topic": "", "queueId": "-1", "group": "%RETRY%"},
    {"topic": "../../x", "queueId": "9" * 400, "offset": "1e9", "consumerGroup": "\0"},
    {str(number): "\U0001f642" * 50 for number in range(100)},
)
_HOSTILE_BODIES: Final = (
    b"",
    b"hello",
    bytes(range(256)),
    b"[" * 10_000,
    b'{"topic":null,"a":{"a":[]}}',
    b"\xff" * 70_000,
)


Answers = dict[tuple[int, int, int], Command | None]
"""Answers by code and by the numbers of fields and body; None: it was kept."""


def check_plugin(
    module: object,
    *,
    name: str = "checked",
    settings: Mapping[str, str] | None = None,
) -> PluginInfo:
    """Check a plugin; PluginError lists what is wrong, else what it offers is returned.

    `settings` are keys of the broker, the plugin's own among them. Call it from a
    function that is not async: it runs a broker in a thread.
    """
    problems = list(_problems_of_hooks(module))
    if problems:
        raise PluginError(name, "; ".join(problems))
    info, answers, problems = _try_out(module, name, settings or {})
    if hasattr(module, "rmq_native_handlers"):
        slow = {**(settings or {}), "rmq.nativeHandlers": "false"}
        _, others, more = _try_out(module, name, slow)
        problems += more
        problems += _differences(answers, others)
    if problems:
        raise PluginError(name, "; ".join(dict.fromkeys(problems)))
    return info


def _try_out(
    module: object, name: str, settings: Mapping[str, str]
) -> tuple[PluginInfo, Answers, list[str]]:
    """Run a broker with the plugin and ask it everything."""
    given: dict[str, list[Any]] = {}
    answers: Answers = {}
    plugins = {name: _recorded(module, given)}
    with (
        tempfile.TemporaryDirectory(prefix="rmq-plugin-") as folder,
        _logged_failures() as problems,
        BrokerThread(Path(folder), settings, plugins=plugins) as broker,
    ):
        assert broker.node.broker is not None
        loaded = broker.node.broker.context.plugins.list()
        (info,) = [each for each in loaded if each.name == name]
        problems += _problems_of_options(module)
        problems += _problems_of_gifts(given)
        for code in info.codes:
            problems += broker.run(_ask_all, broker.address, code, answers)
    return info, answers, problems


def _recorded(module: object, given: dict[str, list[Any]]) -> ModuleType:
    """Return the hooks of a module; what they return is noted, for they run once."""
    copy = ModuleType("recorded")
    for hook in dir(module):
        function = getattr(module, hook)
        if hook.startswith(HOOK_PREFIX) and callable(function):
            setattr(copy, hook, _recording(function, given.setdefault(hook, [])))
    return copy


def _recording(function: Callable[..., Any], into: list[Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def hook(*arguments: object, **named: object) -> object:
        answer = function(*arguments, **named)
        into.extend(answer or ())
        return answer

    return hook


def _differences(answers: Answers, others: Answers) -> Iterator[str]:
    """Compare the answers with and without compiled handlers."""
    for key, answer in answers.items():
        other = others[key]
        told = None if answer is None else (answer.code, answer.body)
        if told != (None if other is None else (other.code, other.body)):
            yield f"code {key[0]} is answered otherwise without its compiled handler"


def _problems_of_hooks(module: object) -> Iterator[str]:
    """Compare the hooks with their specifications."""
    found = [each for each in dir(module) if each.startswith(HOOK_PREFIX)]
    hooks = [each for each in found if callable(getattr(module, each))]
    if not hooks:
        yield "it has no hook: no function whose name begins with rmq_"
    for each in hooks:
        specification = getattr(hookspecs, each, None)
        if specification is None:
            yield f"there is no hook {each}"
            continue
        function = getattr(module, each)
        if not hasattr(function, "rmq_impl"):
            yield f"{each} is not marked with @hookimpl of rmq.hookspecs"
        wanted = list(inspect.signature(specification).parameters)
        have = list(inspect.signature(function).parameters)
        if have != wanted:
            yield f"{each} takes ({', '.join(have)}), not ({', '.join(wanted)})"


def _problems_of_gifts(given: Mapping[str, list[Any]]) -> Iterator[str]:
    """Look at what the hooks returned, apart from handlers."""
    for each in given.get("rmq_put_interceptors", ()):
        if not isinstance(each, PutInterceptor) or not each.triggers:
            yield f"{each!r} is no PutInterceptor with triggers"
    for each in given.get("rmq_services", ()):
        if not inspect.iscoroutinefunction(inspect.unwrap(each)):
            yield f"the service {each!r} is not an async function"
    for hook in ("rmq_request_guards", "rmq_arrival_listeners"):
        for each in given.get(hook, ()):
            if not callable(each):
                yield f"{hook}: {each!r} cannot be called"


def _problems_of_options(module: object) -> Iterator[str]:
    """Look at the option classes of the plugin."""
    classes: list[type] = []
    hook = getattr(module, "rmq_config", None)
    if hook is not None:
        hook(register=classes.append)
    for kind in classes:
        if not dataclasses.is_dataclass(kind):
            yield f"{kind.__name__} is no dataclass"
            continue
        for field, mark in options(kind):
            if not mark.key.startswith("plugin."):
                yield f"the key {mark.key} of {field.name} does not start with plugin."


async def _ask_all(address: str, code: int, answers: Answers) -> list[str]:
    """Ask a code what careless and hostile clients ask."""
    problems = []
    for i, fields in enumerate(_HOSTILE_FIELDS):
        for j, body in enumerate(_HOSTILE_BODIES):
            request = Command(code, dict(fields), body)
            try:
                answer = answers[code, i, j] = await _ask(address, request)
            except PeerClosed:
                problems.append(f"code {code} makes the broker close the connection")
                continue
            if answer is not None and answer.code and not answer.remark:
                problems.append(f"code {code} answers {answer.code} without a remark")
    oneway = Command(code, {}, b"hello", flag=FLAG_ONEWAY)
    with contextlib.suppress(PeerClosed):
        if await _ask(address, oneway) is not None:
            problems.append(f"code {code} answers oneway requests")
    return problems


async def _ask(address: str, request: Command) -> Command | None:
    """Return the answer; None if the handler keeps the request, which it may."""
    async with RawClient.connect(address) as client:
        try:
            return await client.call(request, ANSWER_LIMIT_S)
        except trio.TooSlowError:
            return None


@contextmanager
def _logged_failures() -> Iterator[list[str]]:
    """Collect what dispatch logs about handlers that failed."""
    failures: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            failures.append(f"{record.getMessage().split(' of ')[0]}: {error!r}")

    handler = Collector(logging.ERROR)
    logger = logging.getLogger("rmq.remoting.dispatch")
    logger.addHandler(handler)
    try:
        yield failures
    finally:
        logger.removeHandler(handler)
