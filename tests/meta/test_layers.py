"""import-linter does not see Cython: cimports stay inside _fastpath."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CIMPORT = re.compile(
    r"^\s*(?:from\s+([\w.]+)\s+cimport|cimport\s+([\w.]+))", re.MULTILINE
)
ALLOWED = ("rmq._fastpath", "libc", "cpython", "cython", "posix")


def test_cimports_stay_inside_fastpath():
    wrong = []
    for path in [*ROOT.glob("rmq/**/*.pyx"), *ROOT.glob("rmq/**/*.pxd")]:
        assert path.parent.name == "_fastpath", path
        for match in CIMPORT.finditer(path.read_text()):
            module = match.group(1) or match.group(2)
            if not module.startswith(ALLOWED):
                wrong.append(f"{path.name}: {module}")
    assert not wrong


def test_only_two_modules_import_pluggy():
    users = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("rmq/**/*.py")
        if re.search(r"^\s*(import|from) pluggy", path.read_text(), re.MULTILINE)
    }
    assert users == {"rmq/hookspecs.py", "rmq/plugins.py"}


def test_trio_reaches_the_store_only_in_its_loops():
    users = {
        path.name
        for path in ROOT.glob("rmq/store/*.py")
        if re.search(r"^\s*(import|from) trio", path.read_text(), re.MULTILINE)
    }
    assert users == {
        "cleanup_worker.py",
        "flush.py",
        "index_worker.py",
        "service.py",
        "worker.py",
    }
