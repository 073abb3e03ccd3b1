"""A slave without room on its disk: its master's senders hear that, and lose nothing.

When there is room again, the slave goes on where it stopped.
"""

import errno
import json

import pytest

from rmq.cli.doctor.group_checks import check_groups
from rmq.client.admin import AdminClient
from rmq.outgoing.identity import Identity
from rmq.protocol.codes import RequestCode
from rmq.testing import NameServerThread
from tests.crash.laboratory import Load, broker, check
from tests.crash.test_kill_replicas import GROUP, log_of, state_of, wait_for_slave
from tests.interop import wire
from tests.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

FULL = "no disk space for"


def end_of(address):
    answer = wire.call("{}:{}".format(*address), RequestCode.GET_BROKER_RUNTIME_INFO)
    return int(json.loads(answer.body)["table"]["commitLogMaxOffset"])


def doctor_says(name_server):
    with AdminClient([name_server], Identity()) as admin:
        return [each.text for each in check_groups(admin, admin.brokers())]


def test_a_full_slave_acknowledges_nothing_until_it_has_room(tmp_path, fault):
    control, environment = fault
    load, slave_root = Load(), tmp_path / "slave"
    with NameServerThread(tmp_path / "namesrv") as namesrv:
        more = GROUP | {"namesrvAddr": namesrv.address, "slaveTimeout": 500}
        with (
            broker(
                tmp_path / "master", brokerRole="SYNC_MASTER", inSyncReplicas=2, **more
            ) as (master, address),
            broker(
                slave_root, environment=environment, brokerRole="SLAVE", brokerId=1,
                **more,
            ) as (slave, slave_address),
        ):  # fmt: skip
            wait_for_slave(slave_address)
            load.run(address, 0.3)
            assert load.acknowledged
            assert not load.refused
            control.write_text(f"fallocate {errno.ENOSPC}")
            load.run_until(address, lambda: load.refused)
            assert {answer.code for answer in load.refused} == {12}
            wait_until(lambda: FULL in state_of(slave_address))
            assert any(FULL in text for text in doctor_says(namesrv.address))
            before = len(load.acknowledged)
            load.run(address, 0.1)
            assert len(load.acknowledged) == before
            control.unlink()
            wait_until(lambda: end_of(slave_address) == end_of(address))
            load.run(address, 0.3)
            assert len(load.acknowledged) > before
            wait_until(lambda: end_of(slave_address) == end_of(address))
            end = end_of(address)
            for child in (master, slave):
                child.kill()
                child.wait(20)
            said = slave.stderr.read()
    check(slave_root, load, tmp_path / "copy")
    assert log_of(slave_root)[:end] == log_of(tmp_path / "master")[:end]
    lines = [line for line in said.splitlines() if FULL in line and "master" in line]
    assert len(lines) == 1, said
