"""Shell completion of topics, groups and brokers, whose names come from the servers.

A person waits for the completion: errors are ignored, and the timeout is short.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import click

from rmq.cli.tool_settings import take_settings
from rmq.client.admin import AdminClient
from rmq.core.errors import RmqError

Complete = Callable[[click.Context, click.Parameter, str], list[str]]
TIMEOUT_S: Final = 1.0


def _make_completer(names: Callable[[AdminClient], Iterable[str]]) -> Complete:
    def complete(
        ctx: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[str]:
        options: dict[str, Any] = {**ctx.params, "timeout": TIMEOUT_S}
        try:
            with take_settings(options).admin_client() as admin:
                return [each for each in names(admin) if each.startswith(incomplete)]
        except RmqError:
            return []

    return complete


def _broker_names(admin: AdminClient) -> list[str]:
    return sorted({each.name for each in admin.brokers()})


def _cluster_names(admin: AdminClient) -> list[str]:
    return sorted({each.cluster for each in admin.brokers()})


topics = _make_completer(AdminClient.user_topics)
groups = _make_completer(AdminClient.groups)
brokers = _make_completer(_broker_names)
clusters = _make_completer(_cluster_names)
