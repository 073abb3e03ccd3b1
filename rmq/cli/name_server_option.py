"""The option `-n`, `--namesrvAddr`: every command writes it in the same way."""

from collections.abc import Callable
from typing import Any, Final

import click

DEFAULT_NAME_SERVER: Final = "127.0.0.1:9876"
"""The name server of tools without options."""


def name_server_option(
    text: str, *other_names: str, parameter: str = "namesrv"
) -> click.Option:
    """Return the option; `other_names` are its earlier names.

    Help shows only the common names.
    """
    return _NameServerOption(
        ["-n", "--namesrvAddr", *other_names, parameter],
        metavar="HOST:PORT;…",
        help=text,
    )


def add_name_server_option(
    text: str, *other_names: str, parameter: str = "namesrv"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the option to a command."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        own: list[click.Parameter] = getattr(command, "__click_params__", [])
        option = name_server_option(text, *other_names, parameter=parameter)
        command.__click_params__ = [*own, option]  # type: ignore[attr-defined] # as click does
        return command

    return add


class _NameServerOption(click.Option):
    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return names and text, without the earlier names."""
        record = super().get_help_record(ctx)
        assert record is not None, "the option is not hidden"
        return f"-n, --namesrvAddr {self.metavar}", record[1]
