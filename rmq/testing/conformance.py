"""check_plugin: checks that a plugin follows the rules of the broker.

The function loads the plugin into a real broker with the built-in plugins. It sends
requests with every code of the plugin, with the fields and bodies of careless and
hostile clients. The rules:

* The broker starts with the plugin, and shuts down cleanly.
* The keys of the plugin start with `plugin.<name>.`; only rmq's own plugins may have
  other keys.
* Handlers answer, hold or refuse a request; they raise no other errors.
* Errors have a remark, and oneway requests get no answer.
* A compiled handler answers like the Python handler of its code.
"""

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trio

from rmq.core.errors import PeerClosed, PluginError
from rmq.plugin.broker import PluginInfo
from rmq.plugin.registry import hook_problems, installed_plugins, key_problems
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.testing.peer import RawClient
from rmq.testing.threads import BrokerThread

ANSWER_LIMIT_S: Final = 0.25
"""Time without an answer after which a request counts as held; a handler may hold it.
"""

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
"""Answers by code and the indexes of fields and body; None if the request is held."""


def check_plugin(
    module: object,
    *,
    name: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> PluginInfo:
    """Check a plugin; return its registrations, or raise PluginError with all defects.

    `name` is the name of its entry point, which the module determines; a module that is
    not installed has its own name. `settings` are keys of the broker and of the plugin.
    Do not call it from an async function: it runs a broker in a thread.
    """
    name = name or _name_of(module)
    problems = [*hook_problems(module), *key_problems(module, name)]
    if problems:
        raise PluginError(name, "; ".join(problems))
    info, answers, problems = _try_out(module, name, settings or {})
    if "native" in info.registered:
        slow = {**(settings or {}), "rmq.nativeHandlers": "false"}
        _, others, more = _try_out(module, name, slow)
        problems += more
        problems += _compare_answers(answers, others)
    if problems:
        raise PluginError(name, "; ".join(dict.fromkeys(problems)))
    return info


def _name_of(module: object) -> str:
    own = str(getattr(module, "__name__", "checked"))
    names = [point.name for point in installed_plugins() if point.value == own]
    return names[0] if names else own.rpartition(".")[2]


def _try_out(
    module: object, name: str, settings: Mapping[str, str]
) -> tuple[PluginInfo, Answers, list[str]]:
    """Run a broker with the plugin, and send it all requests."""
    answers: Answers = {}
    with (
        tempfile.TemporaryDirectory(prefix="rmq-plugin-") as folder,
        _plain_plugin_errors(),
        _logged_failures() as problems,
        BrokerThread(Path(folder), settings, plugins={name: module}) as broker,
    ):
        assert broker.node.broker is not None
        loaded = broker.node.broker.context.plugins()
        (info,) = [each for each in loaded if each.name == name]
        for code in info.codes:
            problems += broker.run(
                _send_hostile_requests, broker.address, code, answers
            )
    return info, answers, problems


@contextmanager
def _plain_plugin_errors() -> Iterator[None]:
    """Raise the error of the broker without the exception groups of its nurseries."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if not isinstance(error, PluginError):
            raise
        raise error from None


def _compare_answers(answers: Answers, others: Answers) -> Iterator[str]:
    """Compare the answers with and without compiled handlers."""
    for key, answer in answers.items():
        other = others[key]
        expected = None if answer is None else (answer.code, answer.body)
        if expected != (None if other is None else (other.code, other.body)):
            yield f"code {key[0]} has another answer without its compiled handler"


async def _send_hostile_requests(
    address: str, code: int, answers: Answers
) -> list[str]:
    """Send the requests of careless and hostile clients for a code."""
    problems = []
    for i, fields in enumerate(_HOSTILE_FIELDS):
        for j, body in enumerate(_HOSTILE_BODIES):
            request = Command(code, dict(fields), body)
            try:
                answer = answers[code, i, j] = await _try_request(address, request)
            except PeerClosed:
                problems.append(f"code {code} makes the broker close the connection")
                continue
            if answer is not None and answer.code and not answer.remark:
                problems.append(f"code {code} answers {answer.code} without a remark")
    oneway = Command(code, {}, b"hello", flag=FLAG_ONEWAY)
    with contextlib.suppress(PeerClosed):
        if await _try_request(address, oneway) is not None:
            problems.append(f"code {code} answers oneway requests")
    return problems


async def _try_request(address: str, request: Command) -> Command | None:
    """Return the answer; None if the handler holds the request."""
    async with RawClient.connect(address) as client:
        try:
            return await client.call(request, ANSWER_LIMIT_S)
        except trio.TooSlowError:
            return None


@contextmanager
def _logged_failures() -> Iterator[list[str]]:
    """Collect the log lines of dispatch about failed handlers."""
    failures: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            failures.append(f"{record.getMessage().split(' of ')[0]}: {error!r}")

    handler = Collector(logging.ERROR)
    logger = logging.getLogger("rmq.remoting.dispatch")
    logger.addHandler(handler)
    sparse, logger.filters = logger.filters, []
    try:
        yield failures
    finally:
        logger.filters = sparse
        logger.removeHandler(handler)
