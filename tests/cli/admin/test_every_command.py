"""Every command of `rmq admin` on a node that takes TLS and signed requests only.

So nothing is left for which mqadmin and a JDK are needed.
"""

import json
from pathlib import Path

import pytest
import trio

from rmq.cli.admin.catalogue import ENTRIES, UNSERVED
from rmq.client.admin import AdminClient, Queue
from rmq.outgoing.identity import Identity, Trust
from rmq.protocol.records import decode_stored

PIPED = Path(__file__).parents[1] / "piped"
LINES = {
    "updateTopic": "-b {b} -t Orders -r 2 -w 2",
    "updateTopicList": "-B broker-test -f {topics}",
    "updateSubGroup": "-b {b} -g G",
    "updateSubGroupList": "-c DefaultCluster -f {groups}",
    "updateTopicPerm": "-b {b} -t Orders -p 6",
    "topicRoute": "-t Orders",
    "topicStatus": "-t Orders",
    "topicClusterList": "-t Orders",
    "topicList": "",
    "allocateMQ": "-t Orders -i 10.0.0.1,10.0.0.2",
    "updateOrderConf": "-t Orders -m put -v broker-test:2",
    "setConsumeMode": "-b {b} -t Orders -g G -m PULL",
    "sendMessage": "-t Orders -p body -k key1 -b broker-test -i 1",
    "cleanUnusedTopic": "-b {b}",
    "cleanExpiredCQ": "-b {b}",
    "deleteExpiredCommitLog": "-b {b}",
    "getConsumerConfig": "-g G",
    "consumerConnection": "-g G",
    "producerConnection": "-g G -t Orders",
    "consumerStatus": "-g G",
    "producer": "-B broker-test",
    "consumerProgress": "-g G",
    "startMonitoring": "-a 1",
    "statsAll": "",
    "resetOffsetByTime": "-g G -t Orders -s 0",
    "skipAccumulatedMessage": "-g G -t Orders",
    "cloneGroupOffset": "-s G -d N -t Orders -o true",
    "clusterList": "",
    "clusterRT": "-a 1",
    "brokerStatus": "-B broker-test",
    "brokerConsumeStats": "-b {b}",
    "getBrokerConfig": "-b {b}",
    "updateBrokerConfig": "-b {b} -k fileReservedTime -v 71",
    "haStatus": "-b {b}",
    "exportPopRecord": "-b {b}",
    "getColdDataFlowCtrInfo": "-b {b}",
    "updateColdDataFlowCtrGroupConfig": "-b {b} -g G -v 1024",
    "removeColdDataFlowCtrGroupConfig": "-b {b} -g G",
    "setCommitLogReadAheadMode": "-b {b} -m 0",
    "resetMasterFlushOffset": "-b {b} -o 0",
    "sendMsgStatus": "-b broker-test -c 1",
    "getBrokerLiteInfo": "-b {b} -d",
    "getParentTopicInfo": "-p Parent",
    "getLiteTopicInfo": "-p Parent -l a -s",
    "getLiteClientInfo": "-p Parent -g LG -c c1 -s",
    "getLiteGroupInfo": "-p Parent -g LG -k 3",
    "triggerLiteDispatch": "-p Parent -g LG -b broker-test",
    "getNamesrvConfig": "",
    "updateNamesrvConfig": "-k waitSecondsForService -v 44",
    "updateKvConfig": "-s N -k a -v b",
    "deleteKvConfig": "-s N -k a",
    "wipeWritePerm": "-b broker-test",
    "addWritePerm": "-b broker-test",
    "queryMsgById": "-i {id}",
    "queryMsgByKey": "-t Orders -k key1",
    "queryMsgByUniqueKey": "-t Orders -i {unique}",
    "queryMsgByOffset": "-t Orders -b broker-test -i 1 -o 0",
    "queryMsgTraceById": "-i {unique} -t Orders",
    "printMsg": "-t Orders",
    "printMsgByQueue": "-t Orders -a broker-test -i 1",
    "consumeMessage": "-t Orders",
    "checkMsgSendRT": "-t Orders -a 1",
    "queryCq": "-t Orders -q 1 -i 0",
    "exportMetadata": "-b {b} -f {folder}",
    "exportConfigs": "-c DefaultCluster -f {folder}",
    "exportMetrics": "-c DefaultCluster -f {folder}",
    "createUser": "-b {b} -u alice -p wonderland",
    "updateUser": "-b {b} -u alice -s enable",
    "getUser": "-b {b} -u alice",
    "listUser": "-b {b}",
    "copyUser": "-f {b} -t {b} -u alice",
    "createAcl": "-b {b} -s User:alice -r Topic:Orders -a Pub -d Allow",
    "updateAcl": "-b {b} -s User:alice -r Topic:Orders -a Pub,Sub -d Allow",
    "getAcl": "-b {b} -s User:alice",
    "listAcl": "-b {b}",
    "copyAcl": "-f {b} -t {b} -s User:alice",
    "deleteAcl": "-b {b} -s User:alice",
    "deleteUser": "-b {b} -u alice",
    "deleteSubGroup": "-b {b} -g N",
    "updateStaticTopic": "-c DefaultCluster -t Static -qn 2",
    "remappingStaticTopic": "-b broker-test -t Static",
    "deleteTopic": "-c DefaultCluster -t A",
    "resendDeadLetters": "-B broker-test -g GA --all",
    "auditLog": "-B broker-test",
    "addBroker": "-c {b} -b other.conf",
    "removeBroker": "-c {b} -b DefaultCluster:other:0",
    "getControllerMetaData": "-a {b}",
    "getSyncStateSet": "-a {b} -b broker-test",
    "getBrokerEpoch": "-b broker-test",
    "electMaster": "-a {b} -b 1 -bn broker-test -c DefaultCluster",
    "cleanBrokerMetadata": "-a {b} -bn broker-test -c DefaultCluster",
    "getControllerConfig": "-a {b}",
    "updateControllerConfig": "-a {b} -k notifyBrokerRoleChanged -v true",
}
"""In an order in which they work."""

REFUSED = {
    "consumerConnection", "consumerStatus", "producerConnection", "addBroker",
    "removeBroker", "resendDeadLetters", "getControllerMetaData", "getSyncStateSet",
    "getBrokerEpoch", "electMaster", "cleanBrokerMetadata", "getControllerConfig",
    "updateControllerConfig",
}  # fmt: skip
"""They need a client, a container, a controller, or dead letters."""


def test_no_command_is_forgotten():
    assert LINES.keys() == ENTRIES.keys() - UNSERVED.keys()


@pytest.mark.slow
async def test_every_command_works_where_tls_and_users_are_enforced(
    secured, command, environment, authority, tmp_path
):
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    parent = {"topicName": "Parent", "attributes": {"+message.type": "LITE"}}
    queues = {"readQueueNums": 1, "writeQueueNums": 1}
    topics.write_text(json.dumps([{"topicName": "A"} | queues, parent | queues]))
    bound = {"groupName": "LG", "attributes": {"+lite.bind.topic": "Parent"}}
    groups.write_text(json.dumps([{"groupName": "GA"}, bound]))
    known = {
        "b": secured.address, "topics": topics, "groups": groups, "folder": tmp_path,
        "id": "", "unique": "",
    }  # fmt: skip
    where = "-n", secured.name_servers[0], "--ca", authority.cert
    lines = (PIPED / "columns.txt").read_text().splitlines()
    columns = dict(line.split(": ") for line in lines)
    for name, text in LINES.items():
        words = text.format(**known).split()
        result = await command("admin", name, *where, *words, env=environment)
        codes = (1, 5) if name in REFUSED else (0,)
        assert result.exit_code in codes, (name, result.output)
        if name in columns:
            assert result.stdout.partition("\n")[0] == columns[name].replace(" ", "\t")
        if name == "updateTopic":
            route = "admin", "topicRoute", *where, "-t", "Orders"
            for _ in range(100):
                if (await command(*route, env=environment)).exit_code == 0:
                    break
                await trio.sleep(0.02)
        if name == "sendMessage":
            record = await trio.to_thread.run_sync(first, secured, authority)
            known |= {
                "id": record.offset_msg_id,
                "unique": record.properties["UNIQ_KEY"],
            }
    for name in UNSERVED:
        words = name, *where, "-b", secured.address
        result = await command("admin", *words, env=environment)
        assert result.exit_code == 5
        refused = "not supported", "answered 16 NO_PERMISSION"
        assert any(text in result.stderr for text in refused), name


def first(node, authority):
    """Return the first message of queue 1, read like a tool."""
    identity = Identity("root", "s3cret", Trust(ca=authority.cert))
    with AdminClient(node.name_servers, identity) as admin:
        queue = Queue("broker-test", node.address, 1)
        return decode_stored(admin.pull("Orders", queue, 0)[0])[0]


async def test_doctor_reads_tls_and_user_from_the_file(
    secured, command, environment, secured_settings, tmp_path
):
    path = tmp_path / "broker.conf"
    lines = secured_settings | {
        "bindAddress": "127.0.0.1", "brokerName": "broker-test",
        "storePathRootDir": str(tmp_path / "store"),
        "mappedFileSizeCommitLog": str(1 << 20),
        "mappedFileSizeConsumeQueue": str(20 * 1000),
    }  # fmt: skip
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    server = secured.name_servers[0]
    result = await command("doctor", "--json", "-c", path, "-n", server)
    findings = {each["subject"]: each for each in json.loads(result.stdout)}
    assert not findings["name server"]["is_problem"]
    assert not findings["broker-test main port"]["is_problem"]
    assert findings["broker-test certificate"]["text"].startswith("valid for")
    assert findings["file sizes"]["text"].endswith("have the configured sizes")
    result = await command("doctor", "--json", "-n", server)
    findings = {each["subject"]: each for each in json.loads(result.stdout)}
    assert findings["name server"]["text"] == f"{server} wants TLS"
    assert findings["name server"]["remedy"] == "--tls --ca server-ca.pem"


@pytest.mark.slow
async def test_bench_works_there_in_both_directions(
    secured, command, environment, authority
):
    where = "-n", secured.name_servers[0], "--ca", authority.cert
    sent = await command("bench", *where, "--messages", 50, env=environment)
    assert sent.exit_code == 0, sent.output
    assert "50 messages in " in sent.stdout
    read = await command("bench", *where, "--consume", env=environment)
    assert read.exit_code == 0, read.output
    assert "50 messages in " in read.stdout
