"""Whom a consumer that is far behind is sent to."""

import json

import pytest

from rmq.protocol.codes import RequestCode
from rmq.testing import ClusterThreads
from tests.cluster.test_pair import QUICK, ask, context_of, pull
from tests.waiting import wait_until

FAR = {"accessMessageInMemoryMaxRatio": "0", "rmq.nativeHandlers": "true"}
READS = QUICK | FAR | {"slaveReadEnable": "true"}


def suggested(broker):
    answer = pull(broker)
    assert answer.code == 0, answer
    return int(answer.ext_fields["suggestWhichBrokerId"])


def make_group(broker, **settings):
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    body = json.dumps({"groupName": "G", **settings}).encode()
    assert ask(broker, code, {}, body).code == 0


def settles_at(broker, wanted):
    """The advice is what was learned after somebody asked first."""
    found = {suggested(broker)}

    def is_settled():
        found.add(suggested(broker))
        return wanted in found

    wait_until(is_settled, limit_s=10)
    assert suggested(broker) == wanted
    return found


@pytest.fixture
def cluster(tmp_path, request):
    with ClusterThreads(tmp_path, READS | getattr(request, "param", {})) as threads:
        for number in range(40):
            threads.master.send("T", b"%d" % number, queue_id=0)
        threads.catch_up()
        wait_until(lambda: context_of(threads.slave).topics.get("T") is not None)
        yield threads


def test_a_slave_that_serves_is_suggested_to_who_is_far_behind(cluster):
    make_group(cluster.master)
    assert settles_at(cluster.master, 1) <= {0, 1}
    wait_until(lambda: context_of(cluster.slave).groups.get("G") is not None)
    assert suggested(cluster.slave) == 1


@pytest.mark.parametrize("cluster", [{"slaveReadEnable": "false"}], indirect=True)
def test_without_slave_reads_the_master_is(cluster):
    make_group(cluster.master)
    assert settles_at(cluster.master, 0) == {0}


def test_a_broker_that_is_not_there_is_not(cluster):
    make_group(cluster.master, whichBrokerWhenConsumeSlowly=7)
    assert settles_at(cluster.master, 0) == {0}


@pytest.mark.parametrize(
    "cluster", [{"accessMessageInMemoryMaxRatio": "40"}], indirect=True
)
def test_who_is_near_the_end_reads_from_the_master(cluster):
    make_group(cluster.master)
    assert settles_at(cluster.master, 0) == {0}
