"""The tables of keys and of rights in docs/reference/security.md are those of the
code.
"""

from pathlib import Path

import pytest

from rmq.access.config import AuthConfig
from rmq.config.option import as_text, options
from rmq.protocol.codes import OwnRequestCode, RequestCode
from rmq.remoting.tls import TlsConfig
from rmq_plugins.auth import permissions

TEXT = (Path(__file__).resolve().parents[2] / "docs/reference/security.md").read_text()


@pytest.mark.parametrize("kind", [TlsConfig, AuthConfig])
def test_each_key_stands_there_with_default_and_meaning(kind):
    for field, mark in options(kind):
        plain = as_text(field.default)
        default = f"`{plain}`" if plain else ""
        assert f"| `{mark.key}` | {default} | {mark.doc} |" in TEXT, mark.key


def rights_of(code):
    """What the table says of one request."""
    if code in permissions.FIELDS:
        actions, places = permissions.FIELDS[code]
        names = ", ".join(f"{kind} `{field}`" for kind, field in places)
        text = f"{' or '.join(actions)} on {names}"
    else:
        text = (permissions.SPECIAL[code].__doc__ or "").removesuffix(".")
    found = permissions.LATER.get(code)
    return f"{text}; then {found}" if found else text


def rows():
    codes = sorted({*permissions.FIELDS, *permissions.SPECIAL})
    names = {code.value: code.name for code in (*RequestCode, *OwnRequestCode)}
    return [f"| {code} | {names[code]} | {rights_of(code)} |" for code in codes]


@pytest.mark.parametrize("row", rows())
def test_the_needs_of_each_request_stand_there(row):
    assert row in TEXT, "\n".join(rows())


def test_no_other_row_of_needs_stands_there():
    section = TEXT.partition("## What each request needs")[2].partition("\n## ")[0]
    found = [
        line for line in section.splitlines() if line[:2] == "| " and line[2].isdigit()
    ]
    assert found == rows()


@pytest.mark.parametrize(
    "codes", [permissions.CLUSTER_READS, permissions.CLUSTER_CHANGES]
)
def test_requests_about_the_whole_cluster_are_named(codes):
    names = ", ".join(f"{code.value} {code.name}" for code in sorted(codes))
    assert names in TEXT.replace("\n", " "), names
