"""The table in docs/reference/requests.md is what the plugins register."""

import re
from pathlib import Path

from rmq.plugin.register import MethodOnUse
from rmq.protocol.codes import OwnRequestCode, RequestCode

OWN = set(OwnRequestCode)

TABLE = Path(__file__).resolve().parents[2] / "docs" / "reference/requests.md"
ROW = re.compile(
    r"\| (?P<code>\d+) \| (?P<name>\w+) \| (?P<plugin>\w+) "
    r"\| `(?P<handler>[\w.]+)` \| (?P<ports>[\w, ]+) \|"
)


def test_table_is_true(caller):
    rows = {
        int(row["code"]): (row["name"], row["plugin"], row["handler"], row["ports"])
        for row in ROW.finditer(TABLE.read_text())
    }
    registered = {}
    for code, claimed in caller.handlers.items():
        handler = claimed.resolve() if isinstance(claimed, MethodOnUse) else claimed
        *_, plugin, module = handler.__module__.split(".")
        registered[code] = (
            (OwnRequestCode if code in OWN else RequestCode)(code).name,
            plugin,
            f"{module}.{handler.__qualname__}",
            ", ".join(caller.ports[code]),
        )
    assert rows == registered
