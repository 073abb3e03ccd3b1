"""`rmq context`: saved options of all commands."""

import json

import pytest
from click.testing import CliRunner

from rmq.cli import main
from rmq.cli.tool_settings import take_settings
from rmq.testing import running_node

NOTHING = dict.fromkeys(
    ("namesrv", "context", "tls", "ca", "tls_cert", "tls_key", "tls_name")
)


@pytest.fixture
def rmq(tmp_path, monkeypatch):
    for name in ("NAMESRV_ADDR", "RMQ_USER", "RMQ_PASSWORD_FILE", "RMQ_CONTEXT",
                 "ROCKETMQ_HOME"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def call(*words):
        return CliRunner().invoke(main, ["context", *words])

    return call


def servers(**given):
    return take_settings({**NOTHING, "timeout": 2.0, **given}).name_servers


def test_contexts_are_added_used_and_deleted(rmq, tmp_path):
    (tmp_path / "pw").write_text("secret\n")
    made = rmq("add", "prod", "-n", "a:1;b:2", "--user", "alice",
               "--password-file", str(tmp_path / "pw"), "--ca", "ca.pem")  # fmt: skip
    assert made.exit_code == 0, made.output
    rmq("add", "test", "-n", "c:3", "--use")
    rows = json.loads(rmq("ls", "--json").stdout)
    assert [(row["name"], row["used"], row["tls"]) for row in rows] == [
        ("prod", "", True), ("test", "*", False),
    ]  # fmt: skip
    assert servers() == ("c:3",)
    assert rmq("use", "prod").exit_code == 0
    settings = take_settings({**NOTHING, "timeout": 2.0})
    assert settings.identity.user == "alice"
    assert settings.identity.password == "secret"
    assert settings.identity.trust.ca.startswith("/"), "it is found from each folder"
    found = json.loads(rmq("info", "--json").stdout)
    assert (found["name"], found["namesrv"]) == ("prod", "a:1;b:2")
    rmq("rm", "prod")
    assert servers() == (), "none is in use"
    assert rmq("info").exit_code == 2


def test_which_one_counts(rmq, monkeypatch):
    rmq("add", "prod", "-n", "a:1", "--use")
    rmq("add", "test", "-n", "b:2")
    assert servers() == ("a:1",)
    monkeypatch.setenv("NAMESRV_ADDR", "e:5")
    assert servers() == ("e:5",), "the environment comes before the context in use"
    assert servers(context="test") == ("b:2",), "and a named context before that"
    assert servers(context="test", namesrv="f:6") == ("f:6",)
    monkeypatch.setenv("RMQ_CONTEXT", "test")
    assert servers() == ("b:2",)


def test_files_are_for_their_owner(rmq, tmp_path):
    rmq("add", "prod", "-n", "a:1")
    path = tmp_path / "rmq" / "contexts" / "prod.toml"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["use", "nothing"], 1, "there is no context nothing"),
        (["add", "../x", "-n", "a:1"], 1, "cannot be the name of a context"),
        (["add", "x"], 2, "--namesrvAddr"),
    ],
)
def test_what_is_wrong(rmq, words, code, said):
    result = rmq(*words)
    assert result.exit_code == code
    assert said in result.stderr


async def test_every_command_takes_one(command, tmp_path):
    async with running_node(tmp_path / "store") as node:
        await command("context", "add", "here", "-n", node.name_servers[0])
        result = await command("topic", "create", "T", "--context", "here")
        assert result.exit_code == 0, result.output
        await command("context", "use", "here")
        for words in (
            ["topic", "info", "T"], ["send", "T", "x"], ["consume", "T", "-e"],
            ["admin", "topicRoute", "-t", "T"], ["top", "--once"],
        ):  # fmt: skip
            result = await command(*words)
            assert result.exit_code == 0, (words, result.output)
