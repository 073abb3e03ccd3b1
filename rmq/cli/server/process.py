"""The common part of the commands: read settings, report problems, log.

Exit codes: 0 success, 1 refused or failed, 2 usage, 3 not reachable.
"""

import logging
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NoReturn

import click
import trio

from rmq import __version__
from rmq.core.errors import ConfigError, RmqError
from rmq.core.logs import LineFormatter

logger = logging.getLogger("rmq")

FAILED = 1
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


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
    """Refuse a system without epoll."""
    if not sys.platform.startswith("linux"):
        raise ConfigError(f"rmq runs on Linux (it needs epoll); this is {sys.platform}")


def exit_server(error: RmqError) -> NoReturn:
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
        exit_server(known)
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
