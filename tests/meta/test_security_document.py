"""The tables of keys in docs/security.md are those of the code."""

from pathlib import Path

import pytest

from rmq.access.config import AuthConfig
from rmq.config import as_text, options
from rmq.remoting.tls import TlsConfig

TEXT = (Path(__file__).resolve().parents[2] / "docs/security.md").read_text()


@pytest.mark.parametrize("kind", [TlsConfig, AuthConfig])
def test_each_key_stands_there_with_default_and_meaning(kind):
    for field, mark in options(kind):
        plain = as_text(field.default)
        default = f"`{plain}`" if plain else ""
        assert f"| `{mark.key}` | {default} | {mark.doc} |" in TEXT, mark.key
