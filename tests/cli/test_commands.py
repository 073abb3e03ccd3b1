"""The command line: help, settings, problems in one sentence."""

import json
import logging
import socket
import sys

import pytest
from click.testing import CliRunner

from rmq.cli import main
from rmq.cli.options import JsonFormatter


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
    ["broker", "namesrv", "config check", "config print", "config document"],
)
def test_each_help_shows_an_example(run, command):
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"rmq {command}" in result.output.partition("\n")[2]


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
        ("brokerIP1=10.0.0.1 # change me\n", "a comment must stand on its own line"),
        ("listenPort=ten\n", "a whole number is wanted"),
        ("listenPort=70000\n", "the greatest value is 65535"),
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
    assert "say KEY=VALUE" in result.output


def test_another_system_is_refused_in_one_sentence(run, monkeypatch):
    monkeypatch.setattr("rmq.cli.options.sys.platform", "darwin")
    result = run("broker")
    assert result.exit_code == 1
    assert "runs on Linux" in result.output


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
