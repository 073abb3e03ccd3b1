"""The tables of keys in docs/operations.md are those of the code."""

from pathlib import Path

import pytest

from rmq.broker.config import BrokerConfig
from rmq.config import as_text, options
from rmq.namesrv.config import NamesrvConfig
from rmq.store.config import StoreConfig

TEXT = (Path(__file__).resolve().parents[2] / "docs/operations.md").read_text()
OF_THE_MACHINE = {
    "brokerName": "the host's name",
    "storePathRootDir": "`$HOME/store`",
    "kvConfigPath": "`$HOME/namesrv/kvConfig.json`",
    "namesrvAddr": "`$NAMESRV_ADDR`",
}


def row(field, mark):
    """One line of a table, as it must stand in the document."""
    plain = as_text(field.default)
    default = OF_THE_MACHINE.get(mark.key) or (f"`{plain}`" if plain else "")
    limits = ""
    if (mark.low, mark.high) != (None, None):
        bounds = ("" if bound is None else bound for bound in (mark.low, mark.high))
        limits = "{} … {}".format(*bounds).strip()
    return f"| `{mark.key}` | {default} | {limits} | {mark.doc} |"


@pytest.mark.parametrize("kind", [BrokerConfig, StoreConfig, NamesrvConfig])
def test_each_key_stands_there_with_default_limits_and_meaning(kind):
    missing = [row(*one) for one in options(kind) if row(*one) not in TEXT]
    assert not missing, "\n".join(missing)
