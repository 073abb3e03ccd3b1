"""Shell completion of topics, groups and brokers, which it asks the servers for.

A person is typing meanwhile: errors are ignored, and the timeout is short.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import click

from rmq.cli.tool_settings import take_settings
from rmq.client.admin import AdminClient
from rmq.core.errors import RmqError
from rmq.protocol.topics import is_system_topic, reply_topic

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


def _topics(admin: AdminClient) -> list[str]:
    """Return the topics of users, without internal ones."""
    brokers = admin.brokers()
    own = {name for each in brokers for name in (each.cluster, each.name)}
    own |= {reply_topic(each.cluster) for each in brokers}
    return [
        each
        for each in admin.topics()
        if not (each.startswith("%") or each in own or is_system_topic(each))
    ]


def _broker_names(admin: AdminClient) -> list[str]:
    return sorted({each.name for each in admin.brokers()})


topics = _make_completer(_topics)
groups = _make_completer(AdminClient.groups)
brokers = _make_completer(_broker_names)
