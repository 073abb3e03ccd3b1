"""Tests whose library is missing are skipped, and the summary counts them.

`make test` installs a small set of libraries, `make dev` and CI install all.
"""

import re
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

HEAVY = {
    "celery", "django", "django_tasks", "dramatiq", "duckdb", "fastavro", "google",
    "kombu", "numpy", "obstore", "pyarrow", "taskiq", "yaml",
}  # fmt: skip
"""What the dependency group `dev` has beyond `test`, and tests import."""

REASON = "{} is missing: make dev"
SKIPPED = re.compile(r"(\w+) is missing|could not import '(\w+)")


def find_missing_library(error: BaseException | None) -> str | None:
    """Return the heavy library whose import caused an error."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError):
            library = (error.name or "").partition(".")[0]
            return library if library in HEAVY else None
        error = error.__cause__ or error.__context__
    return None


class MissingLibraries:
    """A plugin of pytest."""

    def __init__(self) -> None:
        self._modules: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        report = yield
        if report.failed and (
            library := find_missing_library(report.call.excinfo.value)
        ):
            report.outcome = "skipped"
            report.longrepr = (str(collector.path), 1, REASON.format(library))
            forget_module(collector.path)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        return (yield from skip_without_library())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        return (yield from skip_without_library())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        count(report, self._modules)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        count(report, self._tests)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        libraries = ", ".join(sorted({*self._modules, *self._tests}))
        if libraries:
            terminalreporter.write_line(
                f"a library is missing ({libraries}), so these do not run: "
                f"{self._modules.total()} modules, {self._tests.total()} tests; "
                "make dev installs more"
            )


def forget_module(path: Path) -> None:
    """Let the next module that imports this one fail in the same way."""
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == str(path):
            del sys.modules[name]


def skip_without_library() -> Generator[None, Any, Any]:
    """Skip a test that fails because a heavy library is missing."""
    try:
        return (yield)
    except Exception as error:
        if library := find_missing_library(error):
            pytest.skip(REASON.format(library))
        raise


def count(
    report: pytest.CollectReport | pytest.TestReport, found: Counter[str]
) -> None:
    """Count what was skipped because of a library, by its name."""
    if not report.skipped or not isinstance(report.longrepr, tuple | list):
        return
    if match := SKIPPED.search(report.longrepr[2]):
        found[match[1] or match[2]] += 1
