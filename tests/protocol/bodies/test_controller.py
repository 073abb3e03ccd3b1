"""The texts as Java 5.5.0 writes and reads them."""

from rmq.protocol.bodies.controller import (
    LAST_EPOCH_END_OFFSET,
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    EpochEntry,
    EpochEntryCache,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
)
from rmq.protocol.bodies.route import BrokerMemberGroup


def test_sync_state_set():
    text = b'{"syncStateSet":[1,2],"syncStateSetEpoch":3}'
    body = SyncStateSet(sync_state_set=[1, 2], sync_state_set_epoch=3)
    assert body.encode() == text
    assert SyncStateSet.decode(text) == body


def test_a_set_that_java_never_made_is_empty():
    assert SyncStateSet.decode(b'{"syncStateSetEpoch":0}') == SyncStateSet()


def test_elected_master_for_brokers_and_for_mqadmin():
    members = BrokerMemberGroup(
        cluster="c", broker_name="b", broker_addrs={1: "127.0.0.1:10911"}
    )
    body = ElectMasterResponseBody(
        cluster="c",
        broker_name="b",
        broker_addrs={1: "127.0.0.1:10911"},
        broker_member_group=members,
        sync_state_set=[1],
    )
    text = body.encode()
    assert text == (
        b'{"brokerAddrs":{"1":"127.0.0.1:10911"},'
        b'"brokerMemberGroup":{"brokerAddrs":{"1":"127.0.0.1:10911"},'
        b'"brokerName":"b","cluster":"c"},"brokerName":"b","cluster":"c",'
        b'"syncStateSet":[1]}'
    )
    assert BrokerMemberGroup.decode(text) == members


def test_elected_master_of_javas_controllers():
    body = ElectMasterResponseBody.decode(
        b'{"brokerMemberGroup":{"brokerAddrs":{1:"127.0.0.1:10911"},"brokerName":"b",'
        b'"cluster":"c"},"syncStateSet":[1]}'
    )
    assert body.broker_member_group is not None
    assert body.broker_member_group.broker_addrs == {1: "127.0.0.1:10911"}
    assert (body.sync_state_set, body.broker_addrs) == ([1], {})


def test_groups_for_tools():
    one = ReplicaIdentity(
        broker_name="b", broker_id=1, broker_address="127.0.0.1:1", alive=True
    )
    info = ReplicasInfo(
        master_broker_id=1,
        master_address="127.0.0.1:1",
        master_epoch=2,
        sync_state_set_epoch=3,
        in_sync_replicas=[one],
    )
    body = BrokerReplicasInfo(replicas_info_table={"b": info})
    text = (
        b'{"replicasInfoTable":{"b":{"inSyncReplicas":[{"alive":true,'
        b'"brokerAddress":"127.0.0.1:1","brokerId":1,"brokerName":"b"}],'
        b'"masterAddress":"127.0.0.1:1","masterBrokerId":1,"masterEpoch":2,'
        b'"notInSyncReplicas":[],"syncStateSetEpoch":3}}}'
    )
    assert body.encode() == text
    assert BrokerReplicasInfo.decode(text) == body


def test_epochs_of_a_broker():
    text = (
        b'{"brokerId":1,"brokerName":"b","clusterName":"c","epochList":'
        b'[{"endOffset":9223372036854775807,"epoch":2,"startOffset":64}],"maxOffset":99}'
    )
    body = EpochEntryCache(
        cluster_name="c",
        broker_name="b",
        broker_id=1,
        epoch_list=[EpochEntry(epoch=2, start_offset=64)],
        max_offset=99,
    )
    assert body.epoch_list[0].end_offset == LAST_EPOCH_END_OFFSET
    assert body.encode() == text
    assert EpochEntryCache.decode(text) == body
