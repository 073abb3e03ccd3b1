"""The clients as fixtures, and a table client × scenario at the end.

What a machine lacks is shown as not run; what a client's own interface lacks as a dash.
"""

import pytest

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
    if not TABLE:
        return
    clients = [kind().name for kind in CLIENT_TOOLCHAINS]
    scenarios = list(dict.fromkeys(scenario for _, scenario in TABLE))
    rows = [["", *clients]]
    for scenario in scenarios:
        rows.append([scenario, *(TABLE.get((name, scenario), "") for name in clients)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    terminalreporter.section(f"interop (- is: {NOT_OFFERED})")
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line("  ".join(cells).rstrip())
