"""What of the client can be checked here of other systems than Linux.

`setup.py` builds a part of the compiled modules there. A client runs with these alone,
and their sources include nothing that only Linux has.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FASTPATH = ROOT / "rmq/_fastpath"

BUILT = """
import json, sys, sysconfig
from distutils.core import run_setup
import setuptools
sysconfig.get_config_vars()
sys.platform = "darwin"
found = run_setup("setup.py", stop_after="init").ext_modules
print(json.dumps(sorted(each.name for each in found)))
"""

PROGRAM = """
import asyncio, importlib.abc, select, sys

allowed = set(sys.argv[2:])
del select.epoll
sys.platform = "darwin"

class Others(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        is_module = name.startswith("rmq._fastpath.") and name.count(".") == 3
        if is_module and name not in allowed:
            raise ImportError(f"{name} is built on Linux only")

sys.meta_path.insert(0, Others())
from rmq.client import Consumer, Message, Producer, Sql, blocking

async def main():
    async with Producer(sys.argv[1], linger_ms=1, compress_over=9) as producer:
        await producer.send(Message("Portable", b"one" * 9, tags="t", keys=["k"]))
        await producer.send_many([Message("Portable", b"more")] * 3)
        await producer.enqueue(Message("Portable", b"last"), key="k")
        await producer.flush()
        async with producer.transaction(Message("Portable", b"half")):
            pass
    topics = {"Portable": "*"}
    async with Consumer(sys.argv[1], "portable", topics, start="first") as consumer:
        seen = [await anext(consumer) for _ in range(6)]
    print(len({each.msg_id for each in seen}))

asyncio.run(main())
with blocking.Producer(sys.argv[1]) as producer:
    print(producer.send(Message("Portable", b"thread")).status.name)
"""

C_STANDARD = {"Python.h", "stddef.h", "stdint.h", "string.h"}
OF_X86 = {"immintrin.h", "emmintrin.h"}
"""Within `#ifdef`, with another way beside them."""


def built_elsewhere() -> list[str]:
    """Return the names of the modules that `setup.py` builds on macOS."""
    out = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILT],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[str] = json.loads(out.stdout.splitlines()[-1])
    return found


def test_a_client_runs_with_what_is_built_elsewhere(broker, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    out = subprocess.run(
        [sys.executable, program, broker.name_server, *built_elsewhere()],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (out.stdout.split(), out.returncode) == (["6", "SEND_OK"], 0), out.stderr


def test_portable_modules_include_nothing_of_linux_alone():
    todo, seen, headers = (
        [each.split(".", 2)[-1] for each in built_elsewhere()],
        set(),
        {},
    )
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        source = FASTPATH / name.replace(".", "/")
        for path in (source.with_suffix(".pyx"), source.with_suffix(".pxd")):
            text = path.read_text() if path.exists() else ""
            todo += re.findall(
                r"^from rmq\._fastpath\.([\w.]+) cimport", text, re.MULTILINE
            )
            for header in re.findall(r'extern from "([^"*]+)"', text):
                if header not in C_STANDARD:
                    text += (FASTPATH / "bytes" / header).read_text()
            headers[name] = headers.get(name, set()) | {
                *re.findall(r"#\s*include <([^>]+)>", text),
                *re.findall(r"^from (posix\S*) cimport", text, re.MULTILINE),
            }
    assert set().union(*headers.values()) <= C_STANDARD | OF_X86, headers
    assert "reactor.reactor" not in seen
