"""mypy, strict, finds nothing in the programs of docs/clients/python.md and in the
examples.
"""

import os
import subprocess
import sys
import textwrap

import pytest

from tests.client.test_documents import BLOCKS, ROOT

NAMES = """\
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from rmq.client import Consumer, Message, Producer, ReceivedMessage

NS, INSERT, account = "", "", ""
entry = b""
rows: list[bytes] = []
endless_rows: AsyncIterator[bytes]
book: Any
post: Any
write: Any
database: Any
was_it_booked: Any
message: Message
producer: Producer
question: ReceivedMessage
orders: Any
"""
"""What a reader of the page fills in."""

OWN = ("asyncio/hello.py", "worker/worker.py")


def check(files, *options):
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", *options]
    done = subprocess.run(
        [*command, *map(str, files)],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.slow
def test_the_programs_of_the_page(tmp_path):
    """Each is the body of a function: some await at their top level.

    Their own functions have no annotations, as those of most readers.
    """
    files = []
    for number, block in enumerate(BLOCKS):
        files.append(tmp_path / f"program_{number}.py")
        body = textwrap.indent(block, "    ")
        files[-1].write_text(f"{NAMES}\n\nasync def program() -> None:\n{body}")
    lax = ("no-untyped-def", "no-untyped-call")
    assert check(files, *(f"--disable-error-code={each}" for each in lax)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_the_examples(name):
    assert check([ROOT / "examples" / name]) == ""
