"""`rmq config check`: encodings, order, roles, folders, and what is open to others."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from rmq.cli import main

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def check(tmp_path):
    """Return a function that checks a file with these bytes; exit code and lines."""

    def call(data, *words, name="broker.conf"):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        result = CliRunner().invoke(main, ["config", "check", str(path), *words])
        text = result.output.replace(f"{tmp_path}/", "")
        return result.exit_code, text.splitlines()

    return call


TEXT = "# 经纪人\nbrokerName=a\nlistenPort=1234\nbindAddress=127.0.0.1\n"


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(), TEXT.encode("utf-8-sig"), TEXT.encode("utf-16"),
        TEXT.encode("utf-16-le"), TEXT.encode("utf-16-be"), TEXT.encode("gbk"),
        TEXT.replace("\n", "\r\n").encode("gbk"), b"",
    ],
    ids=["utf-8", "bom", "utf-16", "le", "be", "gbk", "gbk-dos", "empty"],
)  # fmt: skip
def test_encodings_that_are_read(check, data):
    code, lines = check(data)
    assert code == 0, lines
    if data:
        assert lines == ["broker.conf: 3 keys, no problem"]


def test_a_value_in_another_encoding_names_its_line(check):
    data = "# 经纪人\nbrokerName=a\nrmq.advertise=经\n".encode("gbk")
    code, lines = check(data)
    assert code == 1
    assert "line 3 (rmq.advertise) is not UTF-8: save the file as UTF-8" in lines[0]


def test_half_a_file_in_utf_16(check):
    code, lines = check(TEXT.encode("utf-16")[:-1])
    assert code == 1
    assert "not valid UTF-16" in lines[0]


@pytest.mark.parametrize("text", ["~/store", "${HOME}/store", "$HOME/store"])
def test_a_path_that_only_a_shell_understands(check, text, monkeypatch):
    monkeypatch.setenv("HOME", "/home/alice")
    code, lines = check(f"storePathRootDir={text}\n")
    assert code == 1
    assert lines[0] == (
        f"problem: storePathRootDir={text}: write the whole path, such as "
        "/home/alice/store; only a shell replaces ~ and variables (line 1)"
    )


def test_a_folder_that_cannot_be(check, tmp_path):
    code, lines = check("bindAddress=127.0.0.1\nstorePathRootDir=/proc/x\n")
    assert code == 1
    assert lines[0].startswith("problem: storePathRootDir=/proc/x: /proc is on a file")
    (tmp_path / "file").write_text("")
    code, lines = check(f"storePathRootDir={tmp_path}/file/store\n")
    assert code == 1
    assert any("file is a file, not a folder" in each for each in lines)


def test_problems_are_in_the_order_of_lines(check):
    code, lines = check(
        "listenPort=70000\nbrokrName=x\nlistenPort=10911\nfileReservedTime=x\n"
        "brokerName=a # b\nbindAddress=127.0.0.1\n"
    )
    assert code == 1
    places = [each.rpartition("(")[2] for each in lines]
    assert places == [
        "lines 1 and 3)", "line 2)", "line 4)", "line 5)", "line 5)",
    ]  # fmt: skip


def test_a_key_given_twice_is_a_warning_of_a_start(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("listenPort=1\nlistenPort=2\n")
    line = ["broker", "-c", str(path), "-m"]
    strict = CliRunner().invoke(main, [*line, "--strict-config"])
    assert strict.exit_code == 1
    assert "listenPort occurs 2 times; the last one is used" in strict.output


@pytest.mark.parametrize(
    ("name", "role"),
    [("broker.conf", "broker"), ("controller.conf", "controller"),
     ("namesrv.conf", "name server")],
)  # fmt: skip
def test_the_role_is_found_by_the_keys(name, role):
    path = ROOT / "conf" / name
    result = CliRunner().invoke(main, ["config", "check", str(path)])
    assert result.exit_code == 0, result.output
    role = role.replace("name server", "namesrv")
    assert ("(role" in result.output) == (role != "broker")
    assert role == "broker" or f"no problem (role {role})" in result.output


def test_a_controller_by_its_keys_alone(check):
    text = "rmq.controllerEngine=file\nbindAddress=127.0.0.1\n"
    assert check(text, name="some.conf")[1] == [
        "some.conf: 2 keys, no problem (role controller)"
    ]
    code, lines = check(text, "--role", "broker", name="some.conf")
    assert code == 1
    assert "unknown key rmq.controllerEngine" in lines[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listenPort=10911\n", "ports 10911 and 10909 on 0.0.0.0 are open without"),
        ("bindAddress=10.0.0.1\n", "on 10.0.0.1 are open without"),
        ("bindAddress=127.0.0.1\nrmq.console=true\nrmq.consoleHost=0.0.0.0\n",
         "the console on 0.0.0.0 shows all messages"),
        ("bindAddress=127.0.0.1\n", ""),
        ("rmq.allowOpen=true\n", ""),
        ("authenticationEnabled=true\nauthorizationEnabled=true\n", ""),
    ],
)  # fmt: skip
def test_what_is_open_to_others_is_a_note(check, text, said):
    code, lines = check(text)
    assert code == 0, lines
    if said:
        assert lines[0].startswith("note: ")
        assert said in lines[0]
        assert "127.0.0.1 closes" in lines[0], "with a remedy"
    else:
        assert len(lines) == 1


def test_a_missing_library_is_no_reason_for_another_engine(check, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "httpx" else find(name),
    )
    text = "rmq.controllerEngine=etcd\nrmq.etcdEndpoints=http://127.0.0.1:2379\n"
    code, lines = check(text, name="controller.conf")
    assert code == 1
    assert "pip install 'httpx>=0.27'" in lines[0]
    started = CliRunner().invoke(main, ["controller", "--set", *text.split()[:1]])
    assert started.exit_code == 1
    assert "rmq.ignoreBadStoredValues" not in started.output


@pytest.mark.parametrize(
    ("key", "value", "way_out"),
    [
        ("storeType", "defaultRocksDB", "docs/operate/migrate.md"),
        ("timerRocksDBEnable", "true", "docs/operate/migrate.md"),
        ("enableDLegerCommitLog", "true", "use a group with a controller"),
        ("dLegerGroup", "g", "use groups with a controller"),
        ("messageStorePlugIn", "org.example.Plugin", "write a plugin of rmq"),
        ("isBrokerContainer", "true", "rmq container"),
    ],
)
def test_what_rmq_leaves_out_has_a_way_out(check, key, value, way_out):
    code, lines = check(f"{key}={value}\n")
    assert code == 1
    assert lines[0].startswith(f"problem: {key}")
    assert way_out in lines[0]


SERVED = """
    enableBroadcastOffsetStore useStaticSubscription rejectPullConsumerEnable
    disableConsumeIfConsumerReadSlowly consumerFallbehindThreshold
    coldDataFlowControlEnable enablePopMessageThreshold popInflightMessageThreshold
    serverLoadBalancerEnable storePathCommitLog readOnlyCommitLogStorePaths
    fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer
    fetchControllerAddrByDnsLookup enableSplitRegistration metricsExporterType
    useSeparateRetryQueue priorityOrderAsc popFromRetryProbabilityForPriority
    enableSlaveActingMaster enableRemoteEscape lockInStrictMode totalReplicas
    skipPreOnline enableCompaction
"""


@pytest.mark.parametrize("key", SERVED.split())
def test_keys_of_features_are_in_the_tables_of_the_page(key):
    text = (ROOT / "docs/reference/configuration.md").read_text()
    assert f"\n| `{key}` |" in text
