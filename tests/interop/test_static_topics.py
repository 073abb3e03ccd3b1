"""Apache's own tests of static topics, with three brokers."""

from contextlib import ExitStack

import pytest

from .conftest import prepared
from .processes import free_port, serving
from .toolchains import ApacheTests, run

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

BROKERS = "broker-a", "broker-b", "broker-c"
INSIDE = "testRemappingAndClear"
"""It needs the objects of brokers in its own process."""


def test_apaches_tests_pass(tmp_path):
    tests = prepared(ApacheTests())
    with ExitStack() as stack:
        names = ["--set", f"listenPort={free_port()}"]
        names += ["--set", f"kvConfigPath={tmp_path / 'kv.json'}"]
        name_server = stack.enter_context(serving("namesrv", *names)).namesrv
        for name in BROKERS:
            values = {
                "brokerName": name, "namesrvAddr": name_server,
                "brokerIP1": "127.0.0.1", "storePathRootDir": tmp_path / name,
                "listenPort": free_port(), "mappedFileSizeCommitLog": 4 << 20,
            }  # fmt: skip
            keys = [f"--set={key}={value}" for key, value in values.items()]
            stack.enter_context(serving("broker", *keys))
        home = tmp_path / "home"
        home.mkdir()
        which = "org.apache.rocketmq.test.statictopic.StaticTopicIT", INSIDE
        command = tests.command(home, name_server, BROKERS, *which)
        assert "ran 7, failed 0" in run(command, timeout_s=600)
