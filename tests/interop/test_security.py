"""Clients over TLS, mqadmin with access control on, and Java's own decisions."""

import json
import subprocess
from pathlib import Path

import pytest
import trustme

from .conftest import prepared
from .drivers import driving
from .five import GoSdk, JavaSdk, PythonSdk
from .messages import digests
from .processes import broker_arguments, serving
from .stages import COUNT, SETTINGS, Stage, itself, servers_below, settled
from .toolchains import (
    CLIENTS,
    MQADMIN,
    Java,
    JavaServers,
    Rmq,
    cache_folder,
    digest_of,
    plain_environment,
    run,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

protocols = pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])

DECISIONS = Path(__file__).parents[1] / "plugins" / "auth" / "decisions.jsonl"
MESSAGES = 200
NEEDED = {
    "queueId": "0", "queueOffset": "0", "offset": "0", "timestamp": "0",
    "commitOffset": "0", "maxMsgNums": "1", "sysFlag": "0",
    "suspendTimeoutMillis": "0", "subVersion": "0", "clientID": "c", "key": "k",
    "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1", "delayLevel": "0",
    "tranStateTableOffset": "0", "commitOrRollback": "8", "msgId": "m",
    "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "index": "0",
    "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "isForce": "true",
    "count": "1", "statsName": "s", "statsKey": "k", "username": "u",
}  # fmt: skip
"""Fields without which Java's headers cannot be read."""


@pytest.fixture(scope="module")
def java():
    return prepared(Java())


@pytest.fixture
def authority():
    return trustme.CA()


@pytest.fixture
def authority_file(tmp_path, authority):
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(file)
    return file


@pytest.fixture
def certificate(tmp_path, authority):
    key, cert = tmp_path / "server.key", tmp_path / "server.pem"
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(key)
    issued.cert_chain_pems[0].write_to_path(cert)
    return f"tls.server.certPath={cert}", f"tls.server.keyPath={key}"


def with_properties(command, *properties):
    return [command[0], *(f"-D{each}" for each in properties), *command[1:]]


def exchange(java, namesrv, topic, *properties):
    """Send and receive with Java's client."""
    produce = java.command("QuickProducer", namesrv, topic, str(MESSAGES))
    run(with_properties(produce, *properties), timeout_s=60)
    group = f"group-{topic}"
    consume = java.command(
        "QuickPushConsumer", namesrv, topic, str(MESSAGES), group, "60"
    )
    run(with_properties(consume, *properties), timeout_s=90)


@protocols
def test_java_speaks_tls_and_plain_on_one_port(java, tmp_path, certificate, protocol):
    settings = (*certificate, f"tls.protocols={protocol}")
    with serving(*broker_arguments(tmp_path / "store", *settings)) as server:
        exchange(java, server.namesrv, "Secured", "tls.enable=true")
        exchange(java, server.namesrv, "Open")


@protocols
def test_rmq_client_speaks_tls(tmp_path, authority_file, certificate, protocol):
    settings = (*certificate, f"tls.protocols={protocol}", "tls.server.mode=enforcing")
    options = f"authority={authority_file}", "mode=async"
    with serving(*broker_arguments(tmp_path / "store", *settings)) as server:
        where = server.namesrv, "Secured", MESSAGES
        with driving(Rmq(), tmp_path, "send", *where, *options) as producer:
            assert producer.finish()["count"] == MESSAGES
        with driving(Rmq(), tmp_path, "push", *where, *options) as consumer:
            consumer.wait_received(MESSAGES)
            consumer.finish()
    assert sorted(consumer.digests) == digests(range(MESSAGES))


@protocols
@pytest.mark.parametrize("kind", [JavaSdk, GoSdk, PythonSdk])
def test_an_sdk_of_5x_speaks_tls(tmp_path, authority_file, certificate, protocol, kind):
    encrypted = {"tls": "true", "authority": authority_file}
    keys = dict(key.split("=", 1) for key in certificate)
    settings = SETTINGS | keys | {"tls.protocols": protocol}
    client, folder = prepared(kind()), tmp_path / "broker"

    def stage_over(below):
        return Stage(client, itself(below), below, tmp_path, "Secured")

    with servers_below(folder, settings) as below:
        stage_over(below).make()
    with servers_below(folder, settings | {"tls.server.mode": "enforcing"}) as below:
        stage = stage_over(below)
        with stage.consuming(**encrypted) as consumer:
            settled(consumer)
            stage.send(**encrypted)
            consumer.wait_received(COUNT)
            consumer.finish()
    assert sorted(consumer.digests) == digests(range(COUNT))


def test_java_without_tls_is_refused_where_it_is_enforced(java, tmp_path, certificate):
    settings = (*certificate, "tls.server.mode=enforcing")
    with serving(*broker_arguments(tmp_path / "store", *settings)) as server:
        exchange(java, server.namesrv, "Secured", "tls.enable=true")
        command = java.command("QuickProducer", server.namesrv, "No", "1")
        said = run(command, timeout_s=60)
        assert "failed 0" in said
        assert "sent 0" in said


class Admin:
    """mqadmin of one user."""

    def __init__(self, java, server, home, name, password):
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "tools.yml").write_text(
            f"accessKey: {name}\nsecretKey: {password}\n"
        )
        self._java, self._server, self._home = java, server, home

    def __call__(self, name, *arguments):
        command = self._java.command(
            MQADMIN, name, "-n", self._server.namesrv, *arguments
        )
        home = f"rocketmq.home.dir={self._home}"
        return run(with_properties(command, home), timeout_s=60)


def test_mqadmin_administers_users_and_rules(java, tmp_path):
    settings = (
        "authenticationEnabled=true",
        "authorizationEnabled=true",
        'initAuthenticationUser={"username":"root","password":"pw"}',
    )
    with serving(*broker_arguments(tmp_path / "store", *settings)) as server:
        root = Admin(java, server, tmp_path / "root", "root", "pw")
        ann = Admin(java, server, tmp_path / "ann", "ann", "secret")
        wrong = Admin(java, server, tmp_path / "wrong", "root", "no")
        at = ("-b", server.address)
        root("createUser", *at, "-u", "ann", "-p", "secret", "-t", "Normal")
        assert "ann" in root("listUser", *at)
        assert "secret" in root("getUser", *at, "-u", "ann")
        assert "check signature failed" in wrong("listUser", *at)
        topic = ("-t", "Orders", "-r", "4", "-w", "4")
        assert "no matched policies" in ann("updateTopic", *at, *topic)
        root("createAcl", *at, "-s", "User:ann", "-r", "Topic:Ord*", "-a",
             "Create,Pub", "-d", "Allow")  # fmt: skip
        listed = root("listAcl", *at, "-s", "User:ann")
        assert "Topic:Ord*" in listed
        assert "success" in ann("updateTopic", *at, *topic)
        root("updateAcl", *at, "-s", "User:ann", "-r", "Topic:Ord*", "-a",
             "Create,Pub", "-d", "Deny")  # fmt: skip
        assert "the decision is deny" in ann("updateTopic", *at, *topic)
        root("deleteAcl", *at, "-s", "User:ann")
        assert "Topic:Ord*" not in root("listAcl", *at, "-s", "User:ann")
        root("updateUser", *at, "-u", "ann", "-s", "disable")
        assert "is disabled" in ann("updateTopic", *at, *topic)
        root("deleteUser", *at, "-u", "ann")
        assert "is not found" in ann("updateTopic", *at, *topic)


def java_case(line):
    """A line of the table as `Decisions.java` takes it."""
    case = json.loads(line)
    policies = {}
    for kind, resource, actions, sources, decision in case["policies"]:
        entry = {"resource": resource, "actions": actions, "decision": decision}
        policies.setdefault(kind, []).append(entry | {"sourceIps": sources})
    acl = {
        "subject": "User:ann",
        "policies": [{"policyType": k, "entries": e} for k, e in policies.items()],
    }
    fields = NEEDED | case["fields"] | {"AccessKey": "ann"}
    return json.dumps(
        {
            "acl": acl,
            "code": case["code"],
            "fields": fields,
            "source": case["source"],
            "body": case.get("body"),
        }
    )


def test_java_still_decides_as_the_table_says():
    servers = JavaServers()
    if servers.missing():
        pytest.skip(f"not run: {servers.missing()}")
    servers.prepare()
    libraries = f"{cache_folder() / 'java-servers-5.5.0'}/*"
    source = CLIENTS / "java-auth" / "Decisions.java"
    classes = cache_folder() / f"java-auth-5.5.0-{digest_of([source])}"
    if not classes.exists():
        command = ["javac", "-cp", libraries, "-d", str(classes), str(source)]
        run(command, timeout_s=120)
    lines = DECISIONS.read_text().splitlines()
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", f"{classes}:{libraries}", "Decisions"],
        input="".join(java_case(line) + "\n" for line in lines),
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    answers = [
        json.loads(line.removeprefix("answer "))
        for line in done.stdout.splitlines()
        if line.startswith("answer ")
    ]
    assert answers == [json.loads(line)["answer"] for line in lines]
