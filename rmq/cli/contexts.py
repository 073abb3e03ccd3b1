"""Contexts: saved options of all commands that ask servers.

`rmq/contexts/NAME.toml` below `~/.config` has a context, with the keys of tools.toml.
`rmq/context` has the name of the context in use.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rmq.core.errors import ConfigError

KEYS: Final = (
    "namesrv", "user", "password", "password_file", "tls", "ca", "tls_cert", "tls_key",
    "tls_name",
)  # fmt: skip
FILES: Final = ("password_file", "ca", "tls_cert", "tls_key")
OTHERS_MODE_BITS: Final = 0o077
"""Mode bits by which other users may read or change a file."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Context = dict[str, Any]


def settings_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of tools.toml and of the contexts."""
    base = environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    return Path(base, "rmq")


def list_contexts() -> list[str]:
    """Return the names of all contexts."""
    found = (settings_folder() / "contexts").glob("*.toml")
    return sorted(each.stem for each in found)


def used_context(environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of the context in use; empty without one."""
    if name := environ.get("RMQ_CONTEXT", ""):
        return name
    try:
        return (settings_folder(environ) / "context").read_text("utf-8").strip()
    except (OSError, UnicodeError):
        return ""


def read_context(name: str, environ: Mapping[str, str] = os.environ) -> Context:
    """Return the values of a context; ConfigError if there is none."""
    path = _path_of(name, environ)
    if not path.is_file():
        known = ", ".join(list_contexts())
        have = f"; there are {known}" if known else "; create one with rmq context add"
        raise ConfigError(f"there is no context {name}{have}")
    return read_values(path)


def save_context(name: str, values: Context) -> None:
    """Write a context; paths of files become absolute."""
    path = _path_of(name, os.environ)
    lines = []
    for key, value in values.items():
        text = os.path.abspath(os.path.expanduser(value)) if key in FILES else value
        lines.append(f"{key} = {json.dumps(text, ensure_ascii=False)}\n")
    _write(path, "".join(lines))


def use_context(name: str) -> None:
    """Use a context from now on."""
    read_context(name)
    _write(settings_folder() / "context", f"{name}\n")


def remove_context(name: str) -> None:
    """Delete a context; if it was in use, no context is in use afterwards."""
    read_context(name)
    _path_of(name, os.environ).unlink()
    used = settings_folder() / "context"
    if used.is_file() and used.read_text("utf-8").strip() == name:
        used.unlink()


def read_values(path: Path) -> Context:
    """Read a file of settings; ConfigError names the wrong key or value."""
    # imported on use: most commands have no such file
    import tomllib

    try:
        values = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from error
    for key, value in values.items():
        if key not in KEYS:
            raise ConfigError(f"{path}: unknown key {key}; known: {', '.join(KEYS)}")
        if type(value) is not (bool if key == "tls" else str):
            kind = "true or false" if key == "tls" else "a string"
            raise ConfigError(f"{path}: {key} must be {kind}")
    if "password" in values and path.stat().st_mode & OTHERS_MODE_BITS:
        raise ConfigError(
            f"{path} has a password, and other users may read it: chmod 600 {path}"
        )
    return values


def read_text(path: Path) -> str:
    """Return the text of a file; ConfigError if it cannot be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read {path}: {reason}") from error


def _path_of(name: str, environ: Mapping[str, str]) -> Path:
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a context: write letters, digits, . _ -"
        )
    return settings_folder(environ) / "contexts" / f"{name}.toml"


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(text, "utf-8")
        path.chmod(0o600)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
