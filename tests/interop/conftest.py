"""The clients as fixtures, and tables client × scenario at the end.

What a machine lacks is shown as not run; what a client's own interface lacks as a dash.
"""

import pytest

from .five import SDKS
from .toolchains import CLIENT_TOOLCHAINS

NOT_OFFERED = "the client does not offer it"
TABLE: dict[tuple[str, str], str] = {}


@pytest.fixture(scope="session", params=CLIENT_TOOLCHAINS, ids=lambda kind: kind().name)
def client(request):
    """Each of the clients, installed."""
    return prepared(request.param())


def prepared(toolchain):
    missing = toolchain.missing()
    if missing:
        pytest.skip(f"not run: {missing}")
    toolchain.prepare()
    return toolchain


def needs(client, ability):
    if ability not in client.can:
        pytest.skip(NOT_OFFERED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    kind = getattr(item, "callspec", None) and item.callspec.params.get("client")
    if kind is None:
        return report
    others = [str(v) for k, v in item.callspec.params.items() if k != "client"]
    scenario = item.originalname.removeprefix("test_").replace("_", " ")
    key = kind().name, " ".join([scenario, *others])
    if report.skipped:
        reason = report.longrepr[2].removeprefix("Skipped: ")
        TABLE[key] = "-" if reason == NOT_OFFERED else reason
    elif report.failed:
        TABLE[key] = "FAILED"
    elif report.when == "call":
        TABLE.setdefault(key, "passed")
    return report


def pytest_terminal_summary(terminalreporter):
    for title, toolchains in (
        ("interop", CLIENT_TOOLCHAINS),
        ("interop through the gRPC proxy", SDKS),
    ):
        names = [kind().name for kind in toolchains]
        cells = {key: text for key, text in TABLE.items() if key[0] in names}
        if cells:
            terminalreporter.section(f"{title} (- is: {NOT_OFFERED})")
            write_table(terminalreporter, names, cells)


def write_table(terminalreporter, clients, outcomes):
    scenarios = list(dict.fromkeys(scenario for _, scenario in outcomes))
    rows = [["", *clients]]
    for scenario in scenarios:
        rows.append(
            [scenario, *(outcomes.get((name, scenario), "") for name in clients)]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line("  ".join(cells).rstrip())
