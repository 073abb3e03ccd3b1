"""Failures: each is a sentence and an exit code, with what to do about it."""

import functools

import pytest
import trio

from rmq.cli.failures import Failure, explain, suggest_name
from rmq.core.errors import PeerClosed, RmqError
from rmq.outgoing.refused import AnswerRefused
from rmq.testing import running_node


@pytest.fixture
async def ask(command):
    """Return a function that runs topicList and returns code and lines of errors."""

    async def call(namesrv, *options, env=None):
        result = await command("admin", "topicList", "-n", namesrv, *options, env=env)
        assert "Traceback" not in result.output
        assert result.stdout == "" or result.exit_code == 0
        return result.exit_code, result.stderr.splitlines()

    return call


async def test_nobody_listens(ask):
    assert await ask("127.0.0.1:1") == (
        3,
        [
            "rmq: 127.0.0.1:1 refuses the connection",
            "     no process listens there; -n HOST:PORT names another name server",
            "  -> rmq broker --set rmq.namesrv.listenPort=1",
        ],
    )


@pytest.mark.parametrize("address", ["127.0.0.1", "broker-a", "a:b", ":1", "h:99999"])
async def test_an_address_that_is_none(ask, address):
    code, lines = await ask(address)
    assert code == 3
    assert lines[0].startswith(f"rmq: cannot connect to {address}: ")


async def test_a_server_that_wants_tls(ask, secured, environment):
    code, lines = await ask(secured.name_servers[0], env=environment)
    assert (code, lines[0]) == (3, f"rmq: {secured.name_servers[0]} wants TLS")
    assert lines[-1] == "  -> --tls --ca server-ca.pem"


async def test_a_signer_whom_nobody_trusts(ask, secured, environment):
    code, lines = await ask(secured.name_servers[0], "--tls", env=environment)
    assert code == 3
    assert "is refused: no trusted authority signed it" in lines[0]
    assert lines[-1] == "  -> --ca FILE with the CA bundle that signed the certificate"


async def test_a_certificate_for_another_name(ask, secured, environment, authority):
    server, ca = secured.name_servers[0], ["--ca", authority.cert]
    code, lines = await ask(server, *ca, "--tls-name", "other", env=environment)
    assert (code, lines[0].endswith("is refused: it is not for other")) == (3, True)
    assert "--tls-name" in lines[1]
    for name in ("127.0.0.1", "*"):
        assert await ask(server, *ca, "--tls-name", name, env=environment) == (0, [])


async def test_an_expired_certificate(ask, tmp_path, authority):
    cert, key = authority.issue("127.0.0.1", days=-1)
    settings = {"tls.server.certPath": cert, "tls.server.keyPath": key}
    async with running_node(tmp_path / "store", settings) as node:
        code, lines = await ask(node.name_servers[0], "--ca", authority.cert)
    assert (code, lines[0].endswith("is refused: it has expired")) == (3, True)
    assert "renew the certificate" in lines[1]


async def test_a_clock_by_which_the_certificate_is_not_valid_yet(
    ask, tmp_path, authority
):
    cert, key = authority.issue("127.0.0.1", begins_in_days=1)
    settings = {"tls.server.certPath": cert, "tls.server.keyPath": key}
    async with running_node(tmp_path / "store", settings) as node:
        code, lines = await ask(node.name_servers[0], "--ca", authority.cert)
    assert code == 3
    assert lines[0].endswith("is refused: it is not valid yet by this machine's clock")
    assert lines[1:] == [
        "     the certificate is new, or one of the two clocks is wrong",
        "  -> synchronise both clocks by NTP",
    ]


async def test_a_server_without_tls(ask, tmp_path, authority):
    async with running_node(
        tmp_path / "store", {"tls.server.mode": "disabled"}
    ) as node:
        code, lines = await ask(node.name_servers[0], "--ca", authority.cert)
    assert (code, "does not offer TLS" in lines[0]) == (3, True)


@pytest.mark.parametrize("options", [["--ca", "/nowhere"], ["--tls-cert", "/nowhere"]])
async def test_files_of_tls_that_are_not_there(ask, secured, options):
    code, lines = await ask(secured.name_servers[0], *options)
    assert code == 1
    assert lines == ["rmq: TLS with /nowhere: no such file or directory"]


async def test_a_certificate_of_the_client_is_wanted(ask, tmp_path, authority):
    cert, key = authority.issue("127.0.0.1")
    settings = {
        "tls.server.certPath": cert, "tls.server.keyPath": key,
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": authority.cert,
    }  # fmt: skip
    async with running_node(tmp_path / "store", settings) as node:
        server = node.name_servers[0]
        code, lines = await ask(server, "--ca", authority.cert)
        own = "--tls-cert", cert, "--tls-key", key
        assert await ask(server, "--ca", authority.cert, *own) == (0, [])
    assert code == 3
    assert lines[-1] == "  -> --tls-cert FILE --tls-key FILE"


async def test_nobody_and_a_wrong_password(
    command, secured, authority, environment, tmp_path
):
    line = "admin", "brokerStatus", "-b", secured.address, "--ca", authority.cert
    result = await command(*line)
    assert result.exit_code == 5
    assert result.stderr.splitlines() == [
        "rmq: this broker requires a user",
        f"     {secured.address} answered 16: username cannot be null.",
        "  -> set RMQ_USER, and RMQ_PASSWORD_FILE to a file with the password",
    ]
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    environment["RMQ_PASSWORD_FILE"] = str(wrong)
    result = await command(*line, env=environment)
    assert result.exit_code == 5
    assert result.stderr.startswith("rmq: the password is wrong\n")
    result = await command(*line, env=environment | {"RMQ_USER": "nobody"})
    assert result.exit_code == 5
    assert result.stderr.startswith("rmq: there is no user nobody\n")


async def test_a_name_server_that_is_a_web_server(ask):
    async def answer(stream):
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with trio.open_nursery() as nursery:
        serve = functools.partial(trio.serve_tcp, answer, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        code, lines = await ask(address)
        nursery.cancel_scope.cancel()
    assert code == 3
    assert lines == [
        f"rmq: the server on {address} does not speak the protocol of RocketMQ",
        "     the server answers with HTTP: it is a web server",
        "  -> -n HOST:9876 with the address of a name server",
    ]


async def test_a_topic_that_does_not_exist(command, tmp_path):
    async with running_node(tmp_path / "store") as node:
        server = "-n", node.name_servers[0]
        line = "admin", "topicRoute", *server, "-t"
        await command("topic", "create", "Payments", *server)
        assert (await command(*line, "Payments")).exit_code == 0
        result = await command(*line, "Paymetns")
        other = await command(*line, "Orders")
    assert result.exit_code == 5
    assert result.stderr.splitlines() == [
        "rmq: there is no topic Paymetns",
        "     there is 1 topic; did you mean Payments?",
    ]
    remedy = f"  -> rmq topic create Orders {' '.join(server)}"
    assert other.stderr.splitlines()[-1] == remedy


def test_what_a_server_says_does_not_drive_the_terminal(capsys):
    from rmq.cli.failures import print_failure

    print_failure(explain(RmqError("\x1b[2Jgone\u202e")))
    assert capsys.readouterr().err == "rmq: \\x1b[2Jgone\\u202e\n"


def test_a_right_that_is_missing():
    remark = (
        "User:alice has no permission to access Topic:T from 10.0.0.1, "
        "no matched policies."
    )
    assert explain(AnswerRefused("h:1", 16, remark)) == Failure(
        "user alice has no permission for this on Topic:T",
        "from 10.0.0.1: no matched policies; a super user can allow it",
        "rmq user allow alice Topic:T Get",
    )


def test_names_that_cannot_be_asked_for():
    def names():
        raise PeerClosed("gone")

    assert suggest_name("topic", "T", names) == ("", "")
    assert suggest_name("topic", "ordr", lambda: ["order"]) == (
        "there is 1 topic",
        "order?",
    )
