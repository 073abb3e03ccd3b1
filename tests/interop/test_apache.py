"""Apache's own integration tests, with three brokers and a name server of rmq.

Some need the objects of brokers in their own process: `NOT_OUTSIDE` names them.
`MISSED` names the tests that fail, with the reason. A test that hangs fails, and also
each later test of its class. RMQ_INTEROP_BROKER=java runs them with Java's own brokers,
which shows whose fault a failure is; RMQ_INTEROP_TESTS runs the classes whose names
contain one of the texts, separated by commas.
"""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from fnmatch import fnmatch

import pytest

from tests.waiting import wait_until

from .conftest import prepared
from .processes import free_port, serving
from .test_name_servers import is_up, java_server
from .toolchains import ApacheTests, JavaServers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(5_400)]

BROKERS = "broker-a", "broker-b", "broker-c"
CLASS_TIMEOUT_S, WORKERS = 900, 5
"""Most of the time the tests sleep."""

CHANGE_KEYS = {
    "PopPriorityIT", "OffsetResetForPopIT", "PopBigMessageIT", "BatchAckIT",
    "OffsetResetIT", "LagCalculationIT", "CreateAndUpdateTopicIT",
    "SendAndRecallDelayMessageIT",
}  # fmt: skip
"""Classes that change keys of the brokers; each of them runs alone."""

NOT_OUTSIDE: dict[str, str] = {
    "*ReplicasIT": "containers of Java",
    "*ActingMasterIT": "containers of Java",
    "AddAndRemoveBrokerIT": "containers of Java",
    "BrokerFailoverIT": "containers of Java",
    "BrokerMemberGroupIT": "containers of Java",
    "GetMaxOffsetFromSlaveIT": "containers of Java",
    "GetMetadataReverseIT": "containers of Java",
    "RebalanceLockOnSlaveIT": "containers of Java",
    "ScheduledMessageIT": "containers of Java",
    "SlaveBrokerIT": "containers of Java",
    "SyncConsumerOffsetIT": "containers of Java",
    "TransactionMessageIT": "containers of Java",
    "DLedgerProduceAndConsumeIT": "starts a DLedger broker of its own",
    "LocalGrpcIT": "calls a broker in its process",
    "ClusterGrpcIT": "starts Java's proxy in its process",
    "GrpcBaseIT": "has no tests",
    "StaticTopicIT.testRemappingAndClear": "looks at tables of brokers in its process",
    "OffsetNotFoundIT": "adds a hook to brokers in its process",
    "NormalMessageSendAndRecvIT."
    "testSynSendMessageWhenEnableBuildConsumeQueueConcurrently": "starts a broker",
    "LagCalculationIT.testEstimateLag": "asks the store in its process",
    "OffsetResetForPopIT.testResetOffsetThenAckOldForPopOrderly": "asks for locks",
    "OffsetResetForPopIT.testRestOffsetToSkipMsgForPopOrderly": "asks for locks",
    "BatchSendIT.testBatchSend_ViewMessage": "looks at the class of the store",
    "BatchSendIT.testBatchSend_SysOuterBatch": "looks at the class of the store",
}
MISSED: dict[str, str] = {}
SETTINGS = {
    "brokerIP1": "127.0.0.1",
    "mappedFileSizeCommitLog": 16 << 20,
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "maxTransferCountOnMessageInMemory": 1_024,
    "maxTransferCountOnMessageInDisk": 1_024,
}
"""Keys that Apache sets, too."""
LINE = re.compile(r"^(PLANNED|STARTED|PASSED|FAILED|IGNORED) (\S+)", re.MULTILINE)
OUTCOMES = {
    "PLANNED": "not reached",
    "STARTED": "hung",
    "PASSED": "passed",
    "FAILED": "failed",
    "IGNORED": "ignored",
}
"""The outcome of a test, by the last line about it in the output."""
GOOD = "passed", "ignored"


@pytest.fixture(scope="module")
def apache_tests():
    return prepared(ApacheTests())


def settings_of(folder, name, name_server):
    port = free_port()
    return SETTINGS | {
        "brokerName": name, "namesrvAddr": name_server, "listenPort": port,
        "haListenPort": port - 1, "storePathRootDir": folder / name,
    }  # fmt: skip


def start_rmq(stack, folder):
    """Start three brokers and a name server; return its address."""
    names = [f"listenPort={free_port()}", f"kvConfigPath={folder / 'kv.json'}"]
    words = [word for key in names for word in ("--set", key)]
    name_server = stack.enter_context(serving("namesrv", *words)).namesrv
    for name in BROKERS:
        values = settings_of(folder, name, name_server)
        keys = [f"--set={key}={value}" for key, value in values.items()]
        stack.enter_context(serving("broker", *keys))
    return name_server


def start_java(stack, folder):
    """Start three brokers and a name server of Java's; return its address."""
    servers, port = prepared(JavaServers()), free_port()
    name_server = f"127.0.0.1:{port}"
    home, main_class = folder / "names", "namesrv.NamesrvStartup"
    keys = {"listenPort": port}
    stack.enter_context(java_server(home, main_class, keys, servers))
    wait_until(lambda: is_up(name_server), "Java's name server serves", 90)
    for name in BROKERS:
        home, values = folder / f"{name}-home", settings_of(folder, name, name_server)
        values |= {"mappedFileSizeTimerLog": 1 << 20}
        main_class = "broker.BrokerStartup"
        stack.enter_context(java_server(home, main_class, values, servers))
    wait_until(lambda: is_up(name_server), "Java's brokers are known", 90)
    return name_server


def run_class(tests, home, name_server, name, left_out):
    """Run the tests of a class; return {test: outcome}, and the output."""
    home.mkdir()
    command = tests.command(home, name_server, BROKERS, name, *left_out)
    try:
        done = subprocess.run(
            command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=CLASS_TIMEOUT_S, check=False,
        )  # fmt: skip
        output = done.stdout
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode(errors="replace") + "\ntimed out"
    found = {test: OUTCOMES[word] for word, test in LINE.findall(output)}
    return found or {"*": "not reached"}, output


def short_name(name):
    return name.rpartition(".")[2]


def is_outside(name):
    return not any(fnmatch(short_name(name), pattern) for pattern in NOT_OUTSIDE)


def tests_inside(name):
    """The tests of a class that need the objects of brokers."""
    known = [pattern.partition(".") for pattern in NOT_OUTSIDE]
    return {test for owner, _, test in known if test and owner == short_name(name)}


def with_outcome(found, *outcomes):
    return {test for test, outcome in found.items() if outcome in outcomes}


def tests_to_leave_out(found, attempt):
    """The tests of a class that an attempt leaves out; None if no test needs it."""
    good, hung = with_outcome(found, *GOOD), with_outcome(found, "hung")
    if attempt == 1:
        return good if len(good) < len(found) else None
    return good | hung if with_outcome(found, "not reached") else None


def test_apaches_integration_tests(apache_tests, tmp_path):
    texts = os.environ.get("RMQ_INTEROP_TESTS", "").split(",")
    is_java = os.environ.get("RMQ_INTEROP_BROKER") == "java"
    names = [
        each
        for each in apache_tests.classes()
        if is_outside(each) and any(text in each for text in texts)
    ]
    outcomes = {name: {} for name in names}
    with ExitStack() as stack:
        name_server = (start_java if is_java else start_rmq)(stack, tmp_path)

        def run_one(name, attempt=0, left_out=frozenset()):
            home, left_out = (
                tmp_path / f"{name}-{attempt}",
                left_out | tests_inside(name),
            )
            found, output = run_class(apache_tests, home, name_server, name, left_out)
            bad = with_outcome(found, "failed", "hung", "not reached")
            if bad:
                (tmp_path / f"{name}-{attempt}.txt").write_text(output)
            text = f"{len(found) - len(bad)} of {len(found)}"
            print(short_name(name), attempt, text, *sorted(bad), flush=True)
            outcomes[name].pop("*", None)
            outcomes[name].update(found)

        alone = [name for name in names if short_name(name) in CHANGE_KEYS]
        with ThreadPoolExecutor(WORKERS) as workers:
            list(workers.map(run_one, [each for each in names if each not in alone]))
        for name in alone:
            run_one(name)
        for attempt in 1, 2:  # some tests are in a hurry
            for name in names:
                left_out = tests_to_leave_out(outcomes[name], attempt)
                if left_out is not None:
                    run_one(name, attempt, left_out)
    ran = {
        f"{short_name(name)}.{test}": outcome
        for name, found in outcomes.items()
        for test, outcome in found.items()
        if outcome != "ignored"
    }
    for test, outcome in sorted(ran.items()):
        print(f"{outcome:12} {test}")
    bad = set(ran) - with_outcome(ran, "passed")
    print(f"{len(ran) - len(bad)} of {len(ran)} pass; not: {sorted(bad)}")
    if not is_java:
        assert bad <= MISSED.keys()
