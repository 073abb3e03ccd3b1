"""Tests of the compiled modules under AddressSanitizer.

    python tests/asan.py [PYTEST ARGUMENT …]

Copies the sources to a throw-away folder, compiles them there with
`-fsanitize=address`, and runs pytest in it: without arguments the tests of everything
that calls compiled code, then those of the log again with a tail ring. Python takes its
memory from malloc meanwhile, so that the ends of `bytes` are seen too. Ends with 1 if a
test failed or any process, also one that a test started, left a report; with 2 if the
compiler has no libasan. WORKERS=2 sets how many processes run tests.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [
    "bench", "lab", "conf", "docs", "examples", "plugins", "rmq", "spark", "tests",
    "LICENSE", "Makefile", "README.md", "pyproject.toml", "setup.py",
]  # fmt: skip
TESTS = [
    "tests/access",
    "tests/broker",
    "tests/fastpath",
    "tests/plugins",
    "tests/protocol",
    "tests/remoting",
    "tests/security",
    "tests/store",
]
RING_TESTS = [
    "tests/store",
    "tests/plugins/send/test_compiled_sends.py",
    "tests/plugins/consume/pull/test_compiled_pulls.py",
]
RING = {"RMQ_TAIL_RING": "16777216"}
"""Every store has a ring of this size, if it does not ask for one."""

TIMEOUT_S = 300
"""Of a test; it takes three to five times as long as in the plain build."""

MARKS = "not interop and not crash and not spark and not distribution and not plain"


def find_library() -> str | None:
    """Return the path of the compiler's libasan."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    path = subprocess.run(
        [*compiler, "-print-file-name=libasan.so"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return os.path.realpath(path) if os.path.isabs(path) else None


def copy_sources(folder: Path) -> None:
    """Copy what the tests need; nothing that was compiled."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "bin", "results")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    for generated in folder.glob("rmq/_fastpath/*/*.c"):
        generated.unlink()


def environment(folder: Path, library: str, reports: Path) -> dict[str, str]:
    """Have Python find the copy, and every process write its report to a file."""
    options = "detect_leaks=0:allocator_may_return_null=1"
    return os.environ | {
        "PYTHONPATH": f"{folder}:{folder / 'plugins'}:{folder / 'spark'}",
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": f"{options}:log_path={reports / 'report'}",
    }


def run(folder: Path, library: str, arguments: list[str]) -> int:
    copy_sources(folder)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "egg_info", "build_ext", "--inplace"],
        cwd=folder,
        env=os.environ | {"RMQ_ASAN": "1"},
        check=True,
    )
    reports = folder / "reports"
    reports.mkdir()
    runs = [(arguments, {})] if arguments else [(TESTS, {}), (RING_TESTS, RING)]
    workers = os.environ.get("WORKERS", "2")
    command = [sys.executable, "-m", "pytest", "-q", "-m", MARKS, "-n", workers]
    command += ["-o", f"timeout={TIMEOUT_S}"]
    statuses = [
        subprocess.run(
            [*command, *tests],
            cwd=folder,
            env=environment(folder, library, reports) | more,
            check=False,
        ).returncode
        for tests, more in runs
    ]
    found = sorted(reports.iterdir())
    for report in found:
        print(report.read_text(errors="replace"))  # noqa: T201 - the report
    print(f"reports of AddressSanitizer: {len(found)}")  # noqa: T201
    return int(any(statuses) or bool(found))


def main() -> int:
    library = find_library()
    if library is None:
        print("The compiler has no libasan: install it, or name gcc with CC=gcc.")  # noqa: T201
        return 2
    with tempfile.TemporaryDirectory(prefix="rmq-asan-") as name:
        return run(Path(name), library, sys.argv[1:])


if __name__ == "__main__":
    raise SystemExit(main())
