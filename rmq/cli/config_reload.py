"""SIGHUP: read the settings again and take over what may change while running."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import click

from rmq.cli.options import report_findings
from rmq.cli.service_manager import notify, reloading
from rmq.config_changes import apply_changes, differences
from rmq.errors import RmqError

logger = logging.getLogger("rmq")


class Changeable(Protocol):
    """What runs with configurations."""

    def configs(self) -> Sequence[object]:
        """Return those that may change."""

    def config_changed(self, keys: Collection[str]) -> None:
        """Go on with the new values of these keys."""


def reload_config(gather: Callable[[], Mapping[str, str]], running: Changeable) -> None:
    """Compare the settings with what runs; log what changed and what has to wait.

    A file that is absent, cannot be read or has a wrong value changes nothing.
    """
    notify(reloading())
    configs = running.configs()
    try:
        values = dict(gather())
        report_findings(values, [type(config) for config in configs], strict=False)
        changes, fixed = differences(values, configs)
        outcome = apply_changes(changes, configs)
    except (RmqError, click.UsageError) as error:
        logger.error("the configuration stays as it was: %s", error)
    else:
        for key, value in outcome.changed.items():
            logger.info("%s=%s from now on", key, value)
        for key in fixed:
            logger.warning("%s has changed; the next start takes it over", key)
        if not (outcome.changed or fixed):
            logger.info("the configuration is read again: nothing has changed")
        if outcome.changed:
            running.config_changed(outcome.changed)
        if outcome.refused:
            logger.error("the configuration stays as it was: %s", outcome.remark)
    notify("READY=1")
