"""A broker whose system calls fail on command."""

import subprocess

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
