"""Arguments that are not UTF-8: refused, except in names of files and in bodies.

Python keeps such bytes as surrogates. No text of the protocol can have them.
"""

import os
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import click

SURROGATES: Final = re.compile("[\ud800-\udfff]")
FILES: Final = re.compile(r"\b(FILE|DIR)\b")
"""Metavariables of options that take names of files."""

BODIES: Final = frozenset({("send", "body")})
"""Parameters, by command and name, whose bytes are sent without change."""


SENT_FILES: Final = frozenset({"addBroker"})
"""Commands that send names of files to a server, as texts."""


def has_surrogates(text: str) -> bool:
    """Whether an argument of the process was not UTF-8."""
    return SURROGATES.search(text) is not None


def check_texts(command: click.Command) -> click.Command:
    """Let a command refuse texts that are not UTF-8, if the process got such a text."""
    if any(map(has_surrogates, sys.argv)):
        _add_checks(command)
    return command


def _add_checks(command: click.Command) -> None:
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _add_checks(each)
    for parameter in command.params:
        is_file = isinstance(parameter.type, click.Path | click.File) or (
            FILES.search(parameter.metavar or "") and command.name not in SENT_FILES
        )
        if not is_file and (command.name, parameter.name) not in BODIES:
            parameter.callback = partial(_check_value, parameter.callback)


def _check_value(
    callback: Callable[..., Any] | None,
    context: click.Context,
    parameter: click.Parameter,
    value: object,
) -> object:
    """Call the callback of a parameter after a check of its texts."""
    values = value if isinstance(value, tuple | list) else (value,)
    for each in values:
        if isinstance(each, str) and has_surrogates(each):
            shown = repr(os.fsencode(each))[1:]
            raise click.BadParameter(f"{shown} is no UTF-8.", context, parameter)
    return value if callback is None else callback(context, parameter, value)
