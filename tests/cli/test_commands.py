"""The command line: help, settings, problems in one sentence."""

import gc
import json
import logging
import socket
import sys

import pytest
from click.testing import CliRunner

from rmq.cli import main
from rmq.cli.server.process import JsonFormatter


@pytest.fixture
def run(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    def call(*arguments, env=None):
        return CliRunner().invoke(main, arguments, env=env)

    return call


@pytest.fixture
def write(tmp_path):
    def call(text):
        path = tmp_path / "broker.conf"
        path.write_text(text)
        return str(path)

    return call


@pytest.mark.parametrize(
    "command",
    ["broker", "namesrv", "config check", "config print", "config document", "doctor"],
)
def test_each_help_shows_an_example(run, command):
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"rmq {command}" in result.output.partition("\n")[2]
    assert "\\b" not in result.output, "the mark of lines to keep was not understood"


def test_the_version_is_told(run):
    assert run("--version").output.startswith("rmq, version ")


def test_a_clean_file_passes_the_check(run, write):
    result = run("config", "check", write("brokerName=a\nlistenPort=1234\n"))
    assert result.exit_code == 0
    assert "2 keys, no problem" in result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("brokerIp1=10.0.0.1\n", "did you mean brokerIP1?"),
        ("brokerIP1=10.0.0.1 # change me\n", "a comment needs a line of its own"),
        ("listenPort=ten\n", "it must be a whole number"),
        ("listenPort=70000\n", "the largest value is 65535"),
        ("brokerName=a b\n", "without blanks"),
    ],
)
def test_a_problem_in_a_file_is_one_sentence_and_code_1(run, write, text, said):
    result = run("config", "check", write(text))
    assert result.exit_code == 1
    assert said in result.output
    assert "Traceback" not in result.output


def test_an_unknown_key_stops_a_strict_start_only(run, write):
    path = write("brokerIp1=10.0.0.1\n")
    assert run("broker", "-c", path, "-m").exit_code == 0
    strict = run("broker", "-c", path, "-m", "--strict-config")
    assert strict.exit_code == 1
    assert "brokerIP1" in strict.output


@pytest.mark.parametrize("where", ["file", "--set"])
def test_a_mistyped_key_beside_access_control_ends_the_start(
    run, write, tmp_path, where
):
    """Users and rules would go to the store of the home folder."""
    store = tmp_path / "store"
    mistyped = f"storePathRotDir={store}"
    key = "authenticationEnabled=true\n"
    path = write(key + (f"{mistyped}\n" if where == "file" else ""))
    more = ["--set", mistyped] if where == "--set" else []
    refused = run("broker", "-c", path, "-m", *more)
    assert refused.exit_code == 1
    assert refused.output.endswith(
        "rmq: access control is on, and unknown keys are refused: unknown key "
        "storePathRotDir; did you mean storePathRootDir? (--no-strict-config starts "
        "anyway)\n"
    )
    assert run("broker", "-c", path, "-m", "--no-strict-config", *more).exit_code == 0
    assert run("broker", "-m", *more).exit_code == 0
    known = write(f"{key}sendMessageThreadPoolNums=4\n")
    assert run("broker", "-c", known, "-m").exit_code == 0


def test_flags_win_over_environment_over_file(run, write):
    path = write("listenPort=1111\nbrokerName=file\nbrokerClusterName=file\n")
    env = {"RMQ_LISTEN_PORT": "2222", "RMQ_BROKER_NAME": "env"}
    result = run("broker", "-c", path, "--set", "listenPort=3333", "-m", env=env)
    assert {"listenPort=3333", "brokerName=env", "brokerClusterName=file"} <= set(
        result.stdout.split()
    )


def test_name_servers_come_from_flag_or_environment(run):
    env = {"NAMESRV_ADDR": "env:9876"}
    assert "namesrvAddr=env:9876" in run("broker", "-p", env=env).stdout
    flag = run("broker", "-n", "flag:9876", "-p", env=env)
    assert "namesrvAddr=flag:9876" in flag.stdout


def test_a_file_opens_all_addresses_as_java_does(run, write):
    assert "bindAddress" not in run("broker", "-m").stdout
    opened = run("broker", "-c", write(""), "-m").stdout
    assert "bindAddress=0.0.0.0" in opened


def test_only_differences_are_printed_when_asked(run, write):
    path = write("listenPort=1111\nbindAddress=127.0.0.1\n")
    result = run("config", "print", "-c", path, "--diff-defaults")
    assert result.stdout == "listenPort=1111\n"


def test_wrong_usage_is_code_2(run):
    assert run("broker", "--unknown").exit_code == 2
    assert run("broker", "-c", "/nowhere").exit_code == 2


def test_a_setting_without_value_is_explained(run):
    result = run("broker", "--set", "listenPort")
    assert result.exit_code == 1
    assert "write KEY=VALUE" in result.output


def test_another_system_is_refused_in_one_sentence(run, monkeypatch):
    monkeypatch.setattr("rmq.cli.server.process.sys.platform", "darwin")
    result = run("broker")
    assert result.exit_code == 1
    assert "needs Linux" in result.output


@pytest.mark.parametrize("command", ["broker", "namesrv"])
def test_a_port_in_use_is_one_sentence(run, tmp_path, command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        folder = f"storePathRootDir={tmp_path}"
        settings = ["--set", f"listenPort={port}"]
        if command == "broker":
            settings += ["--set", folder, "--set", "rmq.namesrv.listenPort=0"]
        result = run(command, *settings)
    assert result.exit_code == 1
    assert str(port) in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["broker", "namesrv"])
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("listenPort=ten", "listenPort=ten: it must be a whole number"),
        ("listenPort=65536", "the largest value is 65535"),
        ("listenPort=-1", "the smallest value is 0"),
        ("listenPort", "--set listenPort: write KEY=VALUE"),
    ],
)
def test_a_bad_setting_stops_the_start(run, command, setting, said):
    result = run(command, "--set", setting)
    assert result.exit_code == 1
    assert result.stderr.startswith("rmq: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_setting_may_contain_equals_signs_and_blanks(run):
    result = run("broker", "--set", " msgTraceTopicName = a=b ", "-m")
    assert result.stdout == "msgTraceTopicName=a=b\n"


def test_the_last_setting_of_a_key_wins(run):
    settings = ["--set", "listenPort=1", "--set", "listenPort=2"]
    assert run("broker", *settings, "-m").stdout == "listenPort=2\n"


def test_flags_of_the_broker_win_over_settings(run):
    result = run(
        "broker",
        *("--set", "rmq.advertise=a:1", "--set", "namesrvAddr=a:2", "-m"),
        *("--advertise", "b:1", "-n", "b:2", "--strict-store"),
    )
    lines = {"rmq.advertise=b:1", "namesrvAddr=b:2", "rmq.strictStore=true"}
    assert set(result.stdout.split()) == lines


def test_a_file_is_also_looked_for_in_java_s_home(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home" / "conf").mkdir(parents=True)
    (tmp_path / "home" / "conf" / "b.conf").write_text("brokerName=at-home\n")
    env = {"ROCKETMQ_HOME": str(tmp_path / "home")}
    assert "brokerName=at-home" in run("broker", "-c", "b.conf", "-m", env=env).stdout
    missing = run("broker", "-c", "c.conf", "-m", env=env)
    assert missing.exit_code == 2
    assert "no such file: c.conf or " in missing.stderr
    (tmp_path / "b.conf").write_text("brokerName=here\n")
    assert "brokerName=here" in run("broker", "-c", "b.conf", "-m", env=env).stdout


def test_notes_and_problems_are_told_in_the_order_of_the_file(run, write):
    path = write("sendMessageThreadPoolNums=9\nbrokerIp1=1.2.3.4 # mine\n")
    result = run("config", "check", path)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("note: sendMessageThreadPoolNums has no effect in rmq:")
    assert lines[1].startswith(
        "problem: brokerIp1: the value contains '#' after a blank"
    )
    assert lines[2] == (
        "problem: unknown key brokerIp1; did you mean brokerIP1? (line 2)"
    )


def test_a_wrong_value_hides_no_other_problem(run, write):
    text = "deleteWhen=04 # night\nlistenPort=ten\nbrokerNmae=a\n"
    result = run("config", "check", write(text))
    assert result.exit_code == 1
    problems = [line for line in result.stdout.splitlines() if "problem: " in line]
    assert [
        word in line
        for word, line in zip(
            (
                "'#' after a blank",
                "use hours from 00 to 23",
                "listenPort",
                "did you mean brokerName?",
            ),
            problems,
            strict=True,
        )
    ] == [True] * 4


def test_a_wrong_value_hides_no_missing_certificate(run, write):
    text = "listenPort=ten\ntls.server.certPath=/nowhere.pem\n"
    result = run("config", "check", write(text))
    assert result.exit_code == 1
    assert "listenPort=ten" in result.stdout
    assert "No such file" in result.stdout


def test_notes_alone_are_no_problem(run, write):
    result = run("config", "check", write("useEpollNativeSelector=true\n"))
    assert result.exit_code == 0
    assert "note: useEpollNativeSelector has no effect in rmq" in result.stdout
    assert "1 key, no problem" in result.stdout


def test_a_file_is_checked_for_its_role(run, write):
    path = write("scanNotActiveBrokerInterval=1000\n")
    assert run("config", "check", path, "--role", "namesrv").exit_code == 0
    assert run("config", "check", path).exit_code == 0, "a broker may have its own"
    path = write("brokerPermission=4\n")
    assert run("config", "check", path, "--role", "namesrv").exit_code == 1
    assert run("config", "check", path).exit_code == 0
    assert run("config", "check", path, "--role", "cat").exit_code == 2
    assert run("config", "check", "/nowhere.conf").exit_code == 2


@pytest.mark.parametrize(
    ("command", "data"),
    [
        (["config", "check"], b"a=\\u12"),
        (["config", "check"], b"a=\xff"),
        (["config", "print", "-c"], b"a=\\u12"),
        (["config", "print", "-c"], b"a=\xff"),
        (["config", "print", "-c"], b"listenPort=x"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(run, tmp_path, command, data):
    path = tmp_path / "bad.conf"
    path.write_bytes(data)
    result = run(*command, str(path))
    assert result.exit_code == 1
    assert result.stderr.startswith("rmq: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_the_configuration_in_effect_as_json(run, write):
    path = write("listenPort=1111\nbindAddress=127.0.0.1\n")
    env = {"RMQ_BROKER_NAME": "env"}
    shown = run(
        "config", "print", "-c", path, "--json", "--diff-defaults", env=env
    ).stdout
    assert json.loads(shown) == {"brokerName": "env", "listenPort": "1111"}
    everything = json.loads(run("config", "print", "--json").stdout)
    assert everything["flushDiskType"] == "ASYNC_FLUSH"
    assert everything["autoCreateTopicEnable"] == "true"


def test_the_configuration_of_a_name_server_is_shown(run):
    shown = run("config", "print", "--role", "namesrv").stdout
    assert "listenPort=9876\n" in shown
    assert "brokerName" not in shown


def test_what_is_printed_can_be_read_again(run, write):
    path = write("flushDiskType=SYNC_FLUSH\nmessageDelayLevel=1s 2s\nlistenPort=7\n")
    printed = run("config", "print", "-c", path).stdout
    again = run("config", "print", "-c", write(printed)).stdout
    assert again == printed
    assert run("config", "check", write(printed)).exit_code == 0


def test_json_logs_are_one_object_a_line():
    formatter = JsonFormatter()
    record = logging.LogRecord("rmq.x", 30, "f", 1, "größe %s\nnext", ("a",), None)
    record.created = 1_800_000_000.25
    line = formatter.format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2027-01-15T08:00:00.250+00:00",
        "level": "warning",
        "logger": "rmq.x",
        "message": "größe a\nnext",
    }


def test_a_traceback_is_part_of_its_json_line():
    try:
        raise ValueError("why")
    except ValueError:
        caught = sys.exc_info()
    record = logging.LogRecord("rmq", 40, "f", 1, "it failed", (), caught)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert "ValueError: why" in json.loads(line)["traceback"]


def test_a_command_that_ends_leaves_the_garbage_collector_on(run):
    assert "brokerName=" in run("broker", "-p").output
    assert gc.isenabled()


ALL_WRONG = {
    "listenPort": "70000", "autoCreateTopicEnable": "yes", "flushDiskType": "SYNCFLUSH",
    "mappedFileSizeCommitLog": "lots", "brokerRole": "LEADER",
    "messageDelayLevel": "1s 5x", "tls.server.mode": "enforce",
    "rmq.exportHold": "maybe", "deleteWhen": "25", "namesrvAddr": "127.0.0.1",
    "brokerIP1": "999.1.1.1", "storePathRootDir": "~/store2",
}  # fmt: skip


def test_each_wrong_value_is_told_with_its_line(run, write):
    path = write("".join(f"{key}={value}\n" for key, value in ALL_WRONG.items()))
    result = run("config", "check", path)
    assert result.exit_code == 1
    told = {line.split("=")[0].removeprefix("problem: "): line
            for line in result.stdout.splitlines()}  # fmt: skip
    assert told.keys() == ALL_WRONG.keys()
    for number, key in enumerate(ALL_WRONG, 1):
        assert told[key].endswith(f"(line {number})")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("deleteWhen=24\n", "use hours from 00 to 23"),
        ("namesrvAddr=a:9876,b:9876\n", "several with ; between them"),
        ("brokerName=a\n# c\nbrokerName=b\n", "occurs 2 times; the last one is used"),
        ("brokerName=a\n# c\nbrokerName=b\n", "(lines 1 and 3)"),
        ("tls.server.mode=enforcing\n", "set a certificate and its key"),
        ("tls.server.certPath=/nowhere.pem\n", "No such file"),
        (
            "metricsExporterType=PROM\nmetricsPromExporterPort=10911\n",
            "metricsPromExporterPort and listenPort are both 10911",
        ),
        (
            "rmq.namesrv.listenPort=10909\n",
            "rmq.namesrv.listenPort and listenPort - 2 (the fast port) are both",
        ),
        ("aclEnable=true\n", "authenticationEnabled and authorizationEnabled"),
    ],
)
def test_what_would_fail_later_is_told_by_the_check(run, write, text, said):
    result = run("config", "check", write(text))
    assert result.exit_code == 1
    assert said in result.stdout


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("aclEnable=true\n", True),
        ("aclEnable=false\n", False),
        ("aclEnable=true\nrmq.allowOpen=true\n", False),
        ("aclEnable=true\nauthenticationEnabled=true\n", False),
        ("useTLS=true\n", True),
        ("useTLS=true\ntls.server.mode=enforcing\n", False),
    ],
)
def test_a_promise_of_protection_is_kept_or_refused(run, write, text, is_refused):
    result = run("broker", "-c", write(text), "-m")
    assert result.exit_code == is_refused
    if is_refused:
        assert "promises a protection that rmq does not have" in result.stderr
        assert "--set rmq.allowOpen=true" in result.stderr


def test_the_port_of_the_name_server_has_its_own_key(run, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run(
            "broker", "--set", f"storePathRootDir={tmp_path}", "--set", "listenPort=0",
            "--set", f"rmq.namesrv.listenPort={port}",
        )  # fmt: skip
    assert result.exit_code == 1
    assert "set another rmq.namesrv.listenPort (0 takes any" in result.stderr


def test_a_store_that_is_a_file_is_one_sentence(run, tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    for place in (path, path / "below"):
        result = run("broker", "--set", f"storePathRootDir={place}")
        assert result.exit_code == 1
        assert result.stderr.startswith(f"rmq: storePathRootDir={place}: ")
        assert "is a file, not a directory" in result.stderr
        assert result.stderr.count("\n") == 1
