"""The node of the fuzz, in a process of its own, and what is left of the fuzz in it.

    python tests/security/fuzz_node.py FOLDER [--policies]

It prints its addresses, and for each line that comes the state of the node; `end` lets
it wait before for what is still under way. An audit hook notes what the process touches
outside its folder, or starts.
"""

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import sysconfig
from functools import partial
from pathlib import Path

import trio

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "plugins")]

from rmq.testing import running_node  # noqa: E402
from tests.connections import connections_of  # noqa: E402
from tests.security.identities import SECRET, SUPER, password_of  # noqa: E402

STORE = Path("a/b/c/d/store")
"""Deep enough that a way up from it ends in a folder that is looked through."""

SETTINGS = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "enablePropertyFilter": "true",
    "brokerName": "broker-fuzz",
    "initAuthenticationUser": json.dumps(
        {"username": SUPER, "password": password_of(SUPER)}
    ),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": "i", "secretKey": SECRET + "2"}
    ),
    "tls.server.keyPassword": SECRET + "3",
}


class Crash(Exception):
    """The node is gone, or a good client was hurt."""


class Watch:
    """An audit hook: notes what the process touches outside its folder, or starts."""

    STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")
    CHANGES = (
        "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink",
        "os.truncate", "os.chmod", "os.chown", "os.utime",
    )  # fmt: skip

    REMOVALS = ("os.remove", "os.rmdir")
    """Their second argument is a folder's descriptor, -1 for none."""

    def __init__(self, folder: Path) -> None:
        own = {ROOT, sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
        self._own = (os.path.realpath(folder),)
        self._readable = (*self._own, *map(os.path.realpath, own), "/proc/", "/sys/")
        self.found: set[str] = set()

    def __call__(self, event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            is_write = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            self._look(event, path, self._own if is_write else self._readable)
        elif event in self.CHANGES:
            for path in arguments:
                if event in self.REMOVALS and arguments[1] >= 0:  # as rmtree does
                    path = f"/proc/self/fd/{arguments[1]}/{os.fsdecode(arguments[0])}"
                self._look(event, path, self._own)
        elif event in self.STARTS:
            self.found.add(f"{event} {arguments!r:.200}")

    def _look(self, event: str, path: object, allowed: tuple[str, ...]) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            real = os.path.realpath(os.fsdecode(path))
            if not real.startswith(allowed):
                self.found.add(f"{event} {real!r:.200}")


async def serve(folder: Path, *, has_policies: bool) -> None:
    """Run a node until a line comes; then print what is left of the fuzz."""
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    settings = SETTINGS | {
        "authenticationEnabled": str(has_policies).lower(),
        "authorizationEnabled": str(has_policies).lower(),
        "brokerConfigPath": str(folder / "broker.conf"),
        "kvConfigPath": str(folder / "kvConfig.json"),
    }
    watch = Watch(folder)
    sys.dont_write_bytecode = True  # a module that a request loads is Python's own
    async with running_node(folder, settings) as node:
        sys.addaudithook(watch)
        ports = [node.address, node.name_servers[0]]
        print(json.dumps(ports), flush=True)  # noqa: T201 - the parent reads it
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            if line.strip() == "end":
                await node.server.drain(20)  # relayed requests take some seconds
                with trio.move_on_after(5):  # the ends of connections arrive
                    while is_busy(state_of(node)):
                        await trio.lowlevel.checkpoint()
            state = state_of(node) | {"outside": sorted(watch.found)}
            print(json.dumps(state), flush=True)  # noqa: T201


def is_busy(state: dict[str, float]) -> bool:
    """Also the broker's own registration has a buffer for a moment."""
    return bool(state["connections"] or state["buffer_bytes"])


def state_of(node) -> dict[str, float]:
    counts = node.server.statistics()
    own = len(connections_of(node.server, "namesrv"))
    context = node.broker.context
    size = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    return {
        "connections": counts.reactor.connections - own,
        "buffer_bytes": counts.reactor.buffer_bytes,
        "held_replies": counts.reactor.held,
        "running": counts.running,
        "members": sum(1 for _ in context.consumers.all())
        + sum(1 for _ in context.producers.all()),
        "failures": counts.failures,
        "requests": counts.requests,
        "memory_mib": int(size[1]) / 1024,
        "topics": len(context.topics.all()),
    }


class Target:
    """The node's process and its two addresses."""

    def __init__(self, folder: Path, *, has_policies: bool) -> None:
        self.log = folder / "log"
        self.folder = folder
        command = [sys.executable, __file__, str(folder / STORE)]
        if has_policies:
            command.append("--policies")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        broker, names = json.loads(self._line())
        self.addresses = {"broker": broker, "namesrv": names, "fast": broker}

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Crash(f"the node died: {self.log.read_text()[-3000:]}")
        return line

    def strays(self) -> list[str]:
        """Return what lies beside the store."""
        own = {self.folder / STORE, self.log, *(self.folder / STORE).parents}
        found = []
        for place, folders, files in os.walk(self.folder):
            here = Path(place)
            folders[:] = [
                each for each in folders if here / each != self.folder / STORE
            ]
            found += [here / each for each in (*folders, *files)]
        return [str(each) for each in found if each not in own]

    def state(self, *, is_end: bool = False) -> dict:
        assert self.process.stdin is not None
        self.process.stdin.write("end\n" if is_end else "look\n")
        self.process.stdin.flush()
        return json.loads(self._line())

    def stop(self) -> int:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            return self.process.wait()


if __name__ == "__main__":
    has_policies = "--policies" in sys.argv
    trio.run(partial(serve, Path(sys.argv[1]), has_policies=has_policies))
