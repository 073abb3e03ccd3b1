"""Throughput of a whole node: what a batch of sends costs over TCP, in all layers.

The node runs in a thread of this process; the C generator sends a fixed number and
checks every reply. Smoke, not evidence: bench/load/run.py measures against the echo.
"""

import json
import subprocess
import threading
from pathlib import Path

import pytest
import trio

from rmq.testing.broker import running_node

GENERATOR = Path(__file__).resolve().parent / "load" / "bin" / "generator"
SECONDS_LIMIT = 30


class NodeThread:
    """A node with an event loop of its own."""

    def __init__(self, folder: Path) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run, folder))
        self._thread.start()
        assert self._ready.wait(10), "the node did not start"

    async def _run(self, folder: Path) -> None:
        settings = {"mappedFileSizeCommitLog": str(1 << 26)}
        async with running_node(folder, settings) as node:
            assert node.broker is not None
            self.port = int(node.broker.port)
            self._stop = trio.Event()
            self._token = trio.lowlevel.current_trio_token()
            self._ready.set()
            await self._stop.wait()

    def stop(self) -> None:
        """Stop in order; the store is closed afterwards."""
        self._token.run_sync_soon(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def node(tmp_path):
    thread = NodeThread(tmp_path)
    yield thread
    thread.stop()


@pytest.fixture(scope="module", autouse=True)
def generator():
    GENERATOR.parent.mkdir(exist_ok=True)
    source = GENERATOR.parents[1] / "generator.c"
    subprocess.run(["gcc", "-O2", "-o", GENERATOR, source], check=True)


@pytest.mark.parametrize(
    "shape", [(4, 64, 5_000), (1, 1, 500)], ids=["4x64-5000", "1x1-500"]
)
def test_sends(benchmark, node, shape):
    connections, window, messages = shape
    command = [
        GENERATOR,
        f"--port={node.port}",
        f"--connections={connections}",
        f"--window={window}",
        f"--messages={messages}",
        f"--seconds={SECONDS_LIMIT}",
        "--warm-up=0",
    ]

    def play():
        done = subprocess.run(command, capture_output=True, check=True, timeout=60)
        return json.loads(done.stdout)

    figures = benchmark.pedantic(play, rounds=3, iterations=1)
    benchmark.extra_info.update(figures)
    assert figures["answered"] == messages
