"""SIGHUP: read the settings again and apply the live keys."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import click

from rmq.cli.config.sources import report_findings
from rmq.cli.server.service_manager import notify, reloading_state
from rmq.config.changes import apply_changes, find_differences
from rmq.core.errors import RmqError

logger = logging.getLogger("rmq")


class Changeable(Protocol):
    """A server whose configuration can change."""

    def configs(self) -> Sequence[object]:
        """Return its configurations."""

    def config_changed(self, keys: Collection[str]) -> None:
        """Apply the new values of these keys."""


def reload_config(gather: Callable[[], Mapping[str, str]], running: Changeable) -> None:
    """Apply changed live keys; log changed keys that need a restart.

    A file that is absent, unreadable or wrong changes nothing.
    """
    notify(reloading_state())
    configs = running.configs()
    try:
        values = dict(gather())
        report_findings(values, [type(config) for config in configs], strict=False)
        changes, fixed = find_differences(values, configs)
        outcome = apply_changes(changes, configs)
    except (RmqError, click.UsageError) as error:
        logger.error("the configuration is unchanged: %s", error)
    else:
        for key, value in outcome.changed.items():
            logger.info("%s=%s is in effect", key, value)
        for key in fixed:
            logger.warning("%s has changed; it takes effect at the next start", key)
        if not (outcome.changed or fixed):
            logger.info("configuration reloaded: no key has changed")
        if outcome.changed:
            running.config_changed(outcome.changed)
        if outcome.refused:
            logger.error("the configuration is unchanged: %s", outcome.remark)
    notify("READY=1")
