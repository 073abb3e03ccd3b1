"""`rmq doctor` on a healthy node, and on wrong settings and unhealthy nodes."""

import functools
import json
import os
import socket

import pytest
import trio
from click.testing import CliRunner

from rmq.cli import main
from rmq.cli.doctor import diagnosis
from rmq.cli.doctor.diagnosis import _duration_ms
from rmq.cli.doctor.subscriptions import compare_subscriptions
from rmq.core.clock import SystemClock
from rmq.testing import running_node


@pytest.fixture
def doctor(tmp_path, monkeypatch):
    """Return a function that runs it and reads its findings."""
    monkeypatch.setattr(diagnosis, "MIN_DESCRIPTORS", 1)

    async def call(*arguments):
        line = ["doctor", "--json", "--set", f"storePathRootDir={tmp_path}", *arguments]
        result = await trio.to_thread.run_sync(
            lambda: CliRunner(env={"NAMESRV_ADDR": ""}).invoke(main, line)
        )
        findings = json.loads(result.stdout)
        assert result.exit_code == any(each["is_problem"] for each in findings)
        return findings

    return call


def two_ports():
    """Return a port for a broker: it and the one two below it are free."""
    for port in range(21_000 + os.getpid() % 5_000 * 2, 32_000, 4):
        with socket.socket() as main, socket.socket() as fast:
            try:
                main.bind(("127.0.0.1", port))
                fast.bind(("127.0.0.1", port - 2))
            except OSError:
                continue
            return {"listenPort": str(port)}
    raise AssertionError("no two ports are free")


def problems(findings):
    """Return subject and text of each, but not that this machine's disk is full."""
    found = [each for each in findings if each["is_problem"]]
    found = [each for each in found if "disk is used" not in each["text"]]
    assert all(each["remedy"] for each in found)
    return [(each["subject"], each["text"]) for each in found]


async def test_a_node_that_is_well(doctor, tmp_path):
    async with running_node(tmp_path / "store", two_ports()) as node:
        findings = await doctor("-n", node.name_servers[0])
    assert problems(findings) == []
    subjects = {each["subject"] for each in findings}
    assert {"disk", "file handles", "name server", "broker-test clock"} <= subjects
    assert "gRPC" in subjects
    assert {"broker-test main port", "broker-test fast port", "groups"} <= subjects


async def test_a_broker_elsewhere_says_nothing_of_this_machine(tmp_path, command):
    """Its store, its ports and its disk are not those of the default keys here."""
    async with running_node(tmp_path / "store") as node:
        result = await command("doctor", "--json", "-n", node.name_servers[0])
    findings = json.loads(result.stdout)
    subjects = {each["subject"] for each in findings}
    assert not {"disk", "access", "file sizes", "mapped files"} & subjects
    assert findings[0]["text"].startswith("not checked: no broker with the default")
    assert "-c FILE" in findings[0]["remedy"]


async def test_all_groups_are_counted(tmp_path, command):
    async with running_node(tmp_path / "store") as node:
        where = "-n", node.name_servers[0]
        await command("topic", "create", "T", "-q", 1, *where)
        for group in ("a", "b", "c"):
            await command("consume", "T", "-g", group, "-e", *where)
        result = await command("doctor", "--json", *where)
    (found,) = [e for e in json.loads(result.stdout) if e["subject"] == "groups"]
    assert found["text"].startswith("3 groups, and all clients")


async def test_a_name_server_that_is_away_is_named(tmp_path, command):
    result = await command("doctor", "--json", "-n", "127.0.0.1:1")
    (found,) = [e for e in json.loads(result.stdout) if e["subject"] == "name server"]
    assert "clients of 127.0.0.1:1 find no broker" in found["remedy"]
    assert found["command"] == "rmq broker --set rmq.namesrv.listenPort=1"


async def test_a_typo_in_the_file(doctor, tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("brokerIp1=10.0.0.1\n")
    found = problems(await doctor("-c", str(path), "-n", "127.0.0.1:1"))
    assert found[0][0] == "configuration"
    assert "did you mean brokerIP1?" in found[0][1]
    assert found[-1][0] == "name server"


async def test_the_name_server_that_a_broker_brings_is_asked(doctor, tmp_path):
    path = tmp_path / "broker.conf"
    async with running_node(tmp_path / "store", two_ports()) as node:
        port = node.name_servers[0].rpartition(":")[2]
        path.write_text(
            f"rmq.namesrv.listenPort={port}\nbrokerName=broker-test\n"
            "bindAddress=127.0.0.1\n"
        )
        assert problems(await doctor("-c", str(path))) == []


async def test_keys_of_every_part_of_a_broker_are_known(doctor, tmp_path):
    path = tmp_path / "broker.conf"
    keys = "authenticationEnabled=false", "tls.server.mode=permissive"
    keys += "orderMessageEnable=true", "bindAddress=127.0.0.1"
    path.write_text("\n".join([*keys, ""]))
    found = problems(await doctor("-c", str(path), "-n", "127.0.0.1:1"))
    assert [subject for subject, _ in found] == ["name server"]


async def test_a_value_out_of_range_stops_the_rest(doctor):
    found = problems(await doctor("--set", "listenPort=70000"))
    assert found == [("configuration", "listenPort=70000: the largest value is 65535")]


async def test_an_address_that_nobody_reaches(doctor, tmp_path):
    settings = {"rmq.advertise": "127.0.0.1:9"}
    async with running_node(tmp_path / "store", settings) as node:
        found = problems(await doctor("-n", node.name_servers[0]))
    assert [subject for subject, _ in found] == [
        "broker-test main port",
        "broker-test fast port",
    ]
    assert "127.0.0.1:9 refuses the connection" in found[0][1]


async def test_an_address_where_something_else_listens(doctor, tmp_path):
    """A proxy may take any connection and answer it in HTTP."""

    async def answer(stream):
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with trio.open_nursery() as nursery:
        serve = functools.partial(trio.serve_tcp, answer, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        port = listener.socket.getsockname()[1]
        advertised = {"rmq.advertise": f"127.0.0.1:{port}"}
        async with running_node(tmp_path / "store", advertised) as node:
            found = problems(await doctor("-n", node.name_servers[0]))
        nursery.cancel_scope.cancel()
    subject, text = found[0]
    assert subject == "broker-test main port"
    assert "does not speak the protocol of RocketMQ" in text


async def test_a_broker_that_the_file_names_and_nobody_knows(doctor, tmp_path):
    async with running_node(tmp_path / "store", two_ports()) as node:
        servers = ["-n", node.name_servers[0]]
        found = problems(await doctor(*servers, "--set", "brokerName=other"))
        assert found == [("brokers", "no broker has the configured name other")]
        assert problems(await doctor(*servers)) == []


async def test_a_full_disk(doctor, monkeypatch):
    monkeypatch.setattr(
        diagnosis.shutil, "disk_usage", lambda _: type("U", (), USAGE)()
    )
    found = problems(await doctor("-n", "127.0.0.1:1"))
    assert [subject for subject, _ in found] == ["disk", "name server"]
    assert "96 % used" in found[0][1]


async def test_a_disk_that_does_not_tell_its_size(doctor, monkeypatch):
    usage = dict.fromkeys(USAGE, 0)
    monkeypatch.setattr(
        diagnosis.shutil, "disk_usage", lambda _: type("U", (), usage)()
    )
    report = await doctor("-n", "127.0.0.1:1")
    assert [subject for subject, _ in problems(report)] == ["name server"]


USAGE = {"total": 100 << 20, "used": 96 << 20, "free": 4 << 20}


async def test_few_file_handles(doctor, monkeypatch):
    monkeypatch.setattr(diagnosis, "MIN_DESCRIPTORS", 1 << 40)
    found = problems(await doctor("-n", "127.0.0.1:1"))
    assert [subject for subject, _ in found] == ["file handles", "name server"]


async def test_a_clock_that_is_wrong(doctor, tmp_path):
    class Ahead(SystemClock):
        def now_ms(self):
            import time

            return int(time.time() * 1_000) + 60_000

    async with running_node(tmp_path / "store", two_ports(), clock=Ahead()) as node:
        found = problems(await doctor("-n", node.name_servers[0]))
    ((subject, text),) = found
    assert subject == "broker-test clock"
    assert "differs from the local clock by 60 s" in text or "by 59 s" in text


async def test_name_servers_that_know_different_brokers(doctor, tmp_path):
    async with (
        running_node(tmp_path / "a") as one,
        running_node(tmp_path / "b", {"brokerName": "other"}) as two,
    ):
        servers = f"{one.name_servers[0]};{two.name_servers[0]}"
        found = problems(await doctor("-n", servers))
    texts = " ".join(text for _, text in found)
    assert f"{two.name_servers[0]} does not know broker-test" in texts
    assert f"{one.name_servers[0]} does not know other" in texts


def test_members_that_want_different_things():
    wanted = {"a": {"T": "*", "U": "x"}, "b": {"T": "*", "U": "y"}, "c": {"U": "x"}}
    assert compare_subscriptions(wanted) == [
        "U: a subscribes to x, b to y",
        "T: a subscribes to *, c to nothing",
    ]


def test_running_times_are_read():
    text = "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
    assert _duration_ms(text) == (((24 + 2) * 60 + 3) * 60 + 4) * 1_000
    assert _duration_ms("") is None


@pytest.mark.parametrize("has_tls", [False, True])
async def test_the_port_of_the_log_is_named(doctor, has_tls):
    arguments = ["--set", "bindAddress=0.0.0.0", "--set", "rmq.allowOpen=true"]
    if has_tls:
        arguments += ["--set", "rmq.haTls=enforcing", "--set", "haListenPort=12345"]
    findings = await doctor("-n", "127.0.0.1:1", *arguments)
    [text] = [each["text"] for each in findings if "whole log" in each["text"]]
    start, end = ("port 12345", "with TLS") if has_tls else ("port 10912", "enforcing)")
    assert text.startswith(f"{start} on 0.0.0.0 sends the whole log")
    assert text.endswith(end)
    assert ("plain text" in text) != has_tls
