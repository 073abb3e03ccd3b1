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
        assert path.parents[1].name == "_fastpath", path
        for match in CIMPORT.finditer(path.read_text()):
            module = match.group(1) or match.group(2)
            if not module.startswith(ALLOWED):
                wrong.append(f"{path.name}: {module}")
    assert not wrong


ROOMS = ("bytes", "log", "reactor", "http2", "handlers")


def test_rooms_of_fastpath_cimport_no_room_above():
    wrong = []
    for room in ROOMS:
        above = (*ROOMS[ROOMS.index(room) + 1 :], "client", "arrow")
        forbidden = tuple(f"rmq._fastpath.{each}." for each in above)
        for path in (ROOT / "rmq/_fastpath" / room).glob("*.p[yx][xd]"):
            for match in CIMPORT.finditer(path.read_text()):
                module = match.group(1) or match.group(2)
                if module.startswith(forbidden):
                    wrong.append(f"{room}/{path.name}: {module}")
    assert not wrong


def test_each_room_of_fastpath_lists_its_modules():
    for room in ROOMS:
        folder = ROOT / "rmq/_fastpath" / room
        page = (folder / "__init__.py").read_text()
        listed = {
            line.split()[0] for line in page.splitlines() if re.match(r"\S+  ", line)
        }
        files = [*folder.glob("*.p[yx][xd]"), *folder.glob("*.h")]
        present = {each.name if each.suffix == ".h" else each.stem for each in files}
        assert listed == present


def test_only_two_modules_import_pluggy():
    users = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("rmq/**/*.py")
        if re.search(r"^\s*(import|from) pluggy", path.read_text(), re.MULTILINE)
    }
    assert users == {"rmq/plugin/hookspecs.py", "rmq/plugin/registry.py"}


def test_trio_reaches_the_store_only_in_its_loops():
    users = {
        path.name
        for path in ROOT.glob("rmq/store/*.py")
        if re.search(r"^\s*(import|from) trio", path.read_text(), re.MULTILINE)
    }
    assert users == {
        "cleanup_worker.py",
        "scrub_worker.py",
        "flush.py",
        "index_worker.py",
        "service.py",
        "worker.py",
    }
