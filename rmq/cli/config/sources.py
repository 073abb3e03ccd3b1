"""Settings of a server: configuration file, environment and flags, checked.

Later sources take precedence.
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click

from rmq.config.keys import broken_promises
from rmq.config.option import (
    Finding,
    bad_values,
    check_settings,
    environment_values,
    key_lines,
    read_properties,
)
from rmq.core.errors import ConfigError
from rmq.plugin.registry import PluginSet, unknown_names

logger = logging.getLogger("rmq")

ANY_ADDRESS = "0.0.0.0"
GUARD_KEYS = "authenticationEnabled", "authorizationEnabled"
ALLOW_OPEN_KEY = "rmq.allowOpen"
IGNORE_BAD_KEY = "rmq.ignoreBadStoredValues"


def read_sources(
    path: str | None, settings: Iterable[str], classes: Iterable[type]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of the file, of the environment and of flags."""
    stored = read_properties(find_file(path)) if path else {}
    overrides = environment_values(os.environ, classes)
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: write KEY=VALUE")
        overrides[key.strip()] = value.strip()
    return stored, overrides


def gather_values(
    path: str | None, settings: Iterable[str], classes: Iterable[type]
) -> dict[str, str]:
    """Merge file, environment and flags; later sources win.

    Invalid values of the file are a ConfigError, or ignored if the settings allow it.
    """
    classes = tuple(classes)
    stored, overrides = read_sources(path, settings, classes)
    values = stored | overrides
    if path:
        ignored = _bad_stored_values(path, stored, values, classes)
        values = {key: text for key, text in values.items() if key not in ignored}
        values.setdefault("bindAddress", ANY_ADDRESS)
    return values


def _bad_stored_values(
    path: str,
    stored: Mapping[str, str],
    values: Mapping[str, str],
    classes: tuple[type, ...],
) -> set[str]:
    """Return and log the keys of the file that keep their defaults."""
    bad = bad_values(values, classes)
    reasons = {key: bad[key] for key in bad if values[key] == stored.get(key)}
    if reasons and values.get(IGNORE_BAD_KEY, "").lower() != "true":
        raise ConfigError(
            f"configuration file {path}: {'; '.join(reasons.values())}; correct it, or "
            f"start with --set {IGNORE_BAD_KEY}=true to use the default"
        )
    for reason in reasons.values():
        logger.warning("%s: %s; using the default", path, reason)
    return set(reasons)


def find_file(path: str) -> str:
    """Return the path of an existing file: the given path, or the path in
    $ROCKETMQ_HOME/conf.
    """
    home = os.environ.get("ROCKETMQ_HOME")
    places = [path] if home is None else [path, os.path.join(home, "conf", path)]
    for place in places:
        if os.path.exists(place):
            return place
    raise click.BadParameter(f"no such file: {' or '.join(places)}", param_hint="-c")


def lines_of_keys(path: str) -> dict[str, list[int]]:
    """Return the line numbers, from 1, of each key of a properties file."""
    try:
        return key_lines(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def duplicate_keys(places: Mapping[str, Sequence[int]]) -> list[Finding]:
    """Return a problem for each key that a file has several times."""
    return [
        Finding(key, f"{key} occurs {len(lines)} times; the last one is used", True)
        for key, lines in places.items()
        if len(lines) > 1
    ]


def report_findings(
    values: dict[str, str],
    classes: Iterable[type],
    *,
    strict: bool | None,
    path: str | None = None,
) -> None:
    """Log findings about the settings; ConfigError for a problem if `strict`.

    With `strict=None`, unknown keys are problems only while access control is on. With
    a mistyped `storePathRootDir` users and rules would go to another store.
    """
    findings = [*check_settings(values, classes), *plugin_findings(values)]
    if path:
        findings += duplicate_keys(lines_of_keys(find_file(path)))
    for finding in findings:
        level = logging.WARNING if finding.is_problem else logging.INFO
        logging.getLogger("rmq").log(level, "%s", finding.text)
    problems = [finding.text for finding in findings if finding.is_problem]
    if strict and problems:
        raise ConfigError("; ".join(problems))
    unknown = [finding for finding in findings if finding.is_unknown]
    if strict is None and unknown and is_guarded(values):
        text = "; ".join(finding.text for finding in unknown)
        raise ConfigError(
            f"access control is on, and unknown keys are refused: {text} "
            "(--no-strict-config starts anyway)",
            *(finding.key for finding in unknown),
        )


def is_guarded(values: Mapping[str, str]) -> bool:
    """Whether the settings turn access control on."""
    return any(values.get(key, "").strip().lower() == "true" for key in GUARD_KEYS)


def plugin_findings(values: Mapping[str, str]) -> list[Finding]:
    """Return a problem for each disabled plugin that is not installed."""
    key = "plugins.disabled"
    return [
        Finding(
            key,
            f"{key} names {name}, and no such plugin is installed; rmq plugins ls "
            "--installed lists the installed plugins",
            True,
        )
        for name in unknown_names(values.get(key, ""))
    ]


def refuse_broken_promises(values: Mapping[str, str]) -> None:
    """Raise ConfigError if a key promises a protection that rmq does not have."""
    if values.get(ALLOW_OPEN_KEY, "").strip().lower() == "true":
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
            f"not have: {promise.reason}. Use these keys, or start without the "
            f"protection: --set {ALLOW_OPEN_KEY}=true"
        )


def load_plugins(values: Mapping[str, str]) -> PluginSet:
    """Load the plugins that `plugins.disabled` does not name."""
    plugins = PluginSet()
    plugins.load(values.get("plugins.disabled", ""))
    return plugins
