"""The common part of the commands: read settings, report problems, log.

Exit codes: 0 success, 1 refused or failed, 2 usage, 3 not reachable.
"""

import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

import click
import trio

from rmq import __version__
from rmq.config.keys import broken_promises
from rmq.config.option import bad_values, check, environment_values, read_properties
from rmq.core.errors import ConfigError, RmqError
from rmq.core.logs import LineFormatter
from rmq.plugin.registry import PluginSet

logger = logging.getLogger("rmq")

FAILED = 1
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
ANY_ADDRESS = "0.0.0.0"
ALLOW_OPEN_KEY = "rmq.allowOpen"
IGNORE_BAD_KEY = "rmq.ignoreBadStoredValues"


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that starts a server."""
    for option in (
        click.version_option(__version__, prog_name="rmq"),
        click.option(
            "--log-level",
            type=click.Choice(LOG_LEVELS),
            default="info",
            show_default=True,
            help="Least level of lines on stderr.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(LOG_FORMATS),
            default="text",
            show_default=True,
            help="Lines for people, or one JSON object a line.",
        ),
        click.option(
            "--strict-config",
            is_flag=True,
            help="Refuse to start on unknown keys and swallowed comments.",
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="Set one key; may be repeated, overrides the file.",
        ),
        click.option(
            "-c",
            "--config",
            "path",
            type=click.Path(dir_okay=False),
            help="Java properties file; also looked for in $ROCKETMQ_HOME/conf.",
        ),
    ):
        command = option(command)
    return command


def read_sources(
    path: str | None, settings: Iterable[str], classes: Iterable[type]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of the file, and those of environment and flags."""
    stored = read_properties(located(path)) if path else {}
    said = environment_values(os.environ, classes)
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: write KEY=VALUE")
        said[key.strip()] = value.strip()
    return stored, said


def gather_values(
    path: str | None, settings: Iterable[str], classes: Iterable[type]
) -> dict[str, str]:
    """Combine file, environment and flags; later ones take precedence.

    ConfigError names the file's keys with values that are not valid, unless the
    settings allow to ignore them.
    """
    classes = tuple(classes)
    stored, said = read_sources(path, settings, classes)
    values = stored | said
    if path:
        passed_over = _bad_stored_values(path, stored, values, classes)
        values = {key: text for key, text in values.items() if key not in passed_over}
        values.setdefault("bindAddress", ANY_ADDRESS)
    return values


def _bad_stored_values(
    path: str,
    stored: Mapping[str, str],
    values: Mapping[str, str],
    classes: tuple[type, ...],
) -> set[str]:
    """Return the keys to leave at their defaults, and log them."""
    bad = bad_values(values, classes)
    reasons = {key: bad[key] for key in bad if values[key] == stored.get(key)}
    if reasons and values.get(IGNORE_BAD_KEY, "").lower() != "true":
        raise ConfigError(
            f"configuration file {path}: {'; '.join(reasons.values())}; correct it, or "
            f"start with --set {IGNORE_BAD_KEY}=true to use the default"
        )
    for reason in reasons.values():
        logger.warning(
            "%s: %s; the default is used until it is corrected", path, reason
        )
    return set(reasons)


def located(path: str) -> str:
    """Return the file of this path, or of this name in $ROCKETMQ_HOME/conf."""
    home = os.environ.get("ROCKETMQ_HOME")
    places = [path] if home is None else [path, os.path.join(home, "conf", path)]
    for place in places:
        if os.path.exists(place):
            return place
    raise click.BadParameter(f"there is no {' and no '.join(places)}", param_hint="-c")


def report_findings(
    values: dict[str, str], classes: Iterable[type], *, strict: bool
) -> None:
    """Log findings about the settings; ConfigError on a problem if `strict`."""
    findings = check(values, classes)
    for finding in findings:
        level = logging.WARNING if finding.is_problem else logging.INFO
        logging.getLogger("rmq").log(level, "%s", finding.text)
    problems = [finding.text for finding in findings if finding.is_problem]
    if strict and problems:
        raise ConfigError("; ".join(problems))


def refuse_broken_promises(values: Mapping[str, str]) -> None:
    """Raise ConfigError if a key promises a protection that the ports will not have."""
    if values.get(ALLOW_OPEN_KEY, "").lower() == "true":
        return
    for key, replacement, wanted in (
        ("aclEnable", "authenticationEnabled", "true"),
        ("useTLS", "tls.server.mode", "enforcing"),
    ):
        values = dict(values)
        if values.get(replacement, "").lower() == wanted:
            values.pop(key, None)
    for promise in broken_promises(values):
        raise ConfigError(
            f"{promise.key}={values[promise.key]} promises a protection that rmq does "
            f"not have: {promise.reason}. Use these keys, or start open with "
            f"--set {ALLOW_OPEN_KEY}=true"
        )


def wanted_plugins(values: Mapping[str, str]) -> PluginSet:
    """Load the plugins that are not disabled; their option classes add keys."""
    plugins = PluginSet()
    plugins.load(values.get("plugins.disabled", ""))
    return plugins


def start_logging(level: str, log_format: str) -> None:
    """Log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        text = "%(asctime)s %(levelname)s %(name)s: %(message)s"
        handler.setFormatter(LineFormatter(text))
    logging.basicConfig(level=level.upper(), handlers=[handler])


class JsonFormatter(LineFormatter):
    """One object a line: time, level, logger, message, and a traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; times are UTC with milliseconds."""
        # imported on use: most log lines are text
        from rmq.cli.terminal.text import harmless_json

        moment = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return harmless_json(line)


def check_platform() -> None:
    """Refuse a system without epoll."""
    if not sys.platform.startswith("linux"):
        raise ConfigError(f"rmq runs on Linux (it needs epoll); this is {sys.platform}")


def fail(error: RmqError) -> NoReturn:
    """End with one sentence, or one JSON object with --log-format json."""
    handlers = logging.getLogger().handlers
    if any(isinstance(each.formatter, JsonFormatter) for each in handlers):
        logger.critical("%s", error)
    else:
        click.echo(f"rmq: {error}", err=True)
    sys.exit(FAILED)


def run_to_end(main: Callable[[], Awaitable[None]]) -> None:
    """Run a server; an `RmqError` ends it with one sentence."""
    try:
        trio.run(main)
    except (RmqError, BaseExceptionGroup) as error:
        known = _first_known(error)
        if known is None:
            logger.critical("rmq failed; please report this", exc_info=error)
            sys.exit(FAILED)
        fail(known)
    except OSError as error:
        logger.critical("rmq failed; please report this", exc_info=error)
        sys.exit(FAILED)


def _first_known(error: BaseException) -> RmqError | None:
    """Find an `RmqError` inside the exception groups of nurseries."""
    if isinstance(error, RmqError):
        return error
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            found = _first_known(part)
            if found is not None:
                return found
    return None
