"""Java's client tries again because answers wait for a slow disk: one message each."""

import subprocess

import pytest

from tests.crash.conftest import HERE as FAULTS

from . import wire
from .conftest import prepared
from .processes import broker_arguments, serving
from .toolchains import Java, run

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC, MESSAGES = "Slow", 10
LIMIT_MS, WRITE_MS = 300, 800
"""A client waits so long for an answer; the disk needs so long for a write."""


@pytest.fixture(scope="module")
def java():
    return prepared(Java())


@pytest.fixture
def slow_disk(tmp_path):
    """The command before one whose disk is slow."""
    library, control = tmp_path / "faults.so", tmp_path / "fault"
    build = ["cc", "-shared", "-fPIC", str(FAULTS / "faults.c"), "-o", str(library)]
    subprocess.run([*build, "-ldl"], check=True, timeout=120)
    control.write_text(f"pwritev 0 {WRITE_MS}")
    return "env", f"LD_PRELOAD={library}", f"RMQ_FAULT={control}"


def test_a_late_answer_makes_one_message(java, tmp_path, slow_disk):
    """No first attempt gets its answer in time.

    Without the window no attempt does: each one stores the message again, and waits for
    the disk again, until the client gives up after 21 of them.
    """
    settings = "flushDiskType=SYNC_FLUSH", "rmq.onceWindowMs=60000"
    arguments = broker_arguments(tmp_path / "store", *settings)
    with serving(*arguments, inside=slow_disk) as server:
        command = java.command(
            "Retries", server.namesrv, TOPIC, str(MESSAGES), str(LIMIT_MS)
        )
        said = run(command, timeout_s=200)
        stored = {}
        for record in wire.pull(server.address, TOPIC, queues=4):
            stored.setdefault(record.body, []).append(record)
    sent = [line.split()[1:] for line in said.splitlines() if line.startswith("sent")]
    assert len(sent) == len(stored) == MESSAGES
    for number, status, key, offset_id, queue_id, queue_offset in sent:
        [record] = stored[number.encode()]
        assert status == "SEND_OK"
        assert record.properties["UNIQ_KEY"] == key
        assert int(offset_id[-16:], 16) == record.physical_offset
        assert (int(queue_id), int(queue_offset)) == (
            record.queue_id,
            record.queue_offset,
        )
