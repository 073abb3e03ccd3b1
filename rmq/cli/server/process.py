"""The process of a server: common options, logging, errors.

Exit codes: 0 success, 1 failed, 2 usage.
"""

import errno
import logging
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NoReturn

import click
import trio

from rmq import __version__
from rmq.core.errors import ConfigError, RmqError
from rmq.core.exit_codes import FAILED
from rmq.core.logs import LineFormatter
from rmq.node.signals import end_at_once

logger = logging.getLogger("rmq")

_REMEDIES = {
    errno.ENOSPC: "make room on this disk",
    errno.EDQUOT: "make room in the quota",
    errno.EROFS: "mount the file system read-write",
    errno.EACCES: "give this user the right",
    errno.EPERM: "give this user the right",
    errno.EIO: "check the disk",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the machine's limit of open files",
    errno.ENOMEM: "give this process more memory",
}
"""Actions that end an error of the machine, by its number."""
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all commands that start a server."""
    for option in (
        click.version_option(__version__, prog_name="rmq"),
        click.option(
            "--log-level",
            type=click.Choice(LOG_LEVELS),
            default="info",
            show_default=True,
            help="Lowest level that is logged to stderr.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(LOG_FORMATS),
            default="text",
            show_default=True,
            help="Log as text, or as one JSON object per line.",
        ),
        click.option(
            "--strict-config/--no-strict-config",
            default=None,
            help="Refuse to start if the configuration has problems. Unknown keys are "
            "refused by default if access control is on.",
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="Set one key, overriding the file. Repeatable.",
        ),
        click.option(
            "-c",
            "--config",
            "path",
            type=click.Path(dir_okay=False),
            help="Java properties file, in this folder or in $ROCKETMQ_HOME/conf.",
        ),
    ):
        command = option(command)
    return command


def strict_arguments(is_strict: bool | None) -> list[str]:
    """Return the argument that gives another process the same `--strict-config`."""
    if is_strict is None:
        return []
    return ["--strict-config" if is_strict else "--no-strict-config"]


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
    """Formats a log record as one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; times are in UTC with milliseconds."""
        # imported on use: most log lines are text
        from rmq.cli.terminal.text import escape_json

        moment = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return escape_json(line)


def check_platform() -> None:
    """Raise ConfigError on a system without epoll."""
    if not sys.platform.startswith("linux"):
        raise ConfigError(f"rmq needs Linux (epoll); this is {sys.platform}")


def exit_server(error: RmqError) -> NoReturn:
    """Print an error, as JSON with --log-format json, and exit with code 1."""
    handlers = logging.getLogger().handlers
    if any(isinstance(each.formatter, JsonFormatter) for each in handlers):
        logger.critical("%s", error)
    else:
        click.echo(f"rmq: {error}", err=True)
    sys.exit(FAILED)


def run_to_end(main: Callable[[], Awaitable[None]]) -> None:
    """Run a server until it ends; print an `RmqError` and exit."""
    try:
        with end_at_once():
            trio.run(main)
    except (RmqError, OSError, BaseExceptionGroup) as error:
        known = _first_known(error)
        if known is None:
            logger.critical("rmq failed; please report this", exc_info=error)
            sys.exit(FAILED)
        exit_server(known)


def _explain(error: OSError) -> RmqError:
    """Return an error of the machine as a sentence."""
    assert error.errno is not None
    file = f"{error.filename}: " if error.filename else ""
    return RmqError(f"{file}{error.strerror}: {_REMEDIES[error.errno]}")


def _first_known(error: BaseException) -> RmqError | None:
    """Return the first `RmqError` in nested exception groups, or None.

    Errors of the machine, such as a full disk, have a remedy, too.
    """
    if isinstance(error, RmqError):
        return error
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        return _explain(error)
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            found = _first_known(part)
            if found is not None:
                return found
    return None
