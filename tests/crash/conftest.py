"""A broker whose system calls fail on command."""

import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.laboratory import HERE, RINGS


@pytest.fixture(params=RINGS, ids=lambda ring: f"ring-{ring}")
def ring(request):
    """Bytes of the tail ring of a broker; RMQ_CRASH_RINGS names others."""
    return request.param


@pytest.fixture(scope="session")
def preload(tmp_path_factory):
    target = tmp_path_factory.mktemp("faults") / "faults.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", str(HERE / "faults.c"), "-o", str(target), "-ldl"],
        check=True,
        timeout=120,
    )
    return target


@pytest.fixture
def fault(tmp_path, preload):
    """A control file, and the environment in which a broker obeys it."""
    control = tmp_path / "fault"
    environment = {"LD_PRELOAD": str(preload), "RMQ_FAULT": str(control)}
    return control, environment


@pytest.fixture
def mounted(tmp_path):
    """Make a file system; it goes away with the process that holds it."""

    @contextmanager
    def mount(kind, options="mode=755"):
        folder = tmp_path / kind
        folder.mkdir()
        command = f"mount -t {kind} -o {options} none {folder} && echo && cat"
        with subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as holder:
            if holder.stdout.readline() != "\n":
                pytest.skip(f"no {kind} can be mounted here: {holder.stderr.read()}")
            yield Path(f"/proc/{holder.pid}/root") / folder.relative_to("/")
            holder.stdin.close()

    return mount
