"""Failures on stderr: problem, reason and remedy; and the exit codes.

    rmq: 127.0.0.1:9876 refuses the connection
         no process listens there; -n HOST:PORT names another name server
      -> rmq broker

Frequent errors have all three lines, other errors only the first. A remedy that begins
with `rmq` is a command that can be pasted: it repeats the options with the servers of
the failed command.
"""

import re
import shlex
import sys
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, NoReturn

import click
from click.core import ParameterSource

from rmq.cli.entry import RootGroup
from rmq.client.admin import (
    AdminClient,
    BrokerUnknown,
    GroupUnknown,
    NoBroker,
    SeveralRegistered,
)
from rmq.core.address import Address, is_loopback
from rmq.core.errors import (
    CertificateWanted,
    ConnectFailed,
    NotTrusted,
    PeerError,
    RmqError,
    TlsWanted,
)
from rmq.core.exit_codes import FAILED, REFUSED, UNREACHABLE
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import ResponseCode

CONNECTION_PARAMETERS: Final = frozenset(
    {"context", "namesrv", "tls", "ca", "tls_cert", "tls_key", "tls_name"}
)

HTTP_AS_LENGTH: Final = str(int.from_bytes(b"HTTP"))

_CERTIFICATE_FAILURES: Final = {
    "expired": ("", "renew the certificate; the server reloads it without a restart"),
    "early": (
        "the certificate is new, or one of the two clocks is wrong",
        "synchronise both clocks by NTP",
    ),
    "name": ("", "--tls-name NAME with a name in the certificate; * accepts any name"),
    "signer": ("", "--ca FILE with the CA bundle that signed the certificate"),
}
SQL_REFUSED: Final = "does not support consumer to filter message by"
DEFAULT_PORT: Final = "9876"
_NO_PERMISSION: Final = re.compile(
    r"User:(\S+) has no permission to access (\S+) from (\S+), (.*)", re.DOTALL
)


_NOT_SIGNED: Final = (
    (re.compile("username cannot be null"), "this broker requires a user",
     "set RMQ_USER, and RMQ_PASSWORD_FILE to a file with the password"),
    (re.compile("check signature failed"), "the password is wrong",
     "set RMQ_PASSWORD_FILE to a file with the right password"),
    (re.compile(r"User:(\S+) is not found"), r"there is no user \1",
     "set RMQ_USER to a user that the broker knows"),
)  # fmt: skip
"""Java's remarks: these refusals share one code, and only the remark differs."""


class Failure(NamedTuple):
    """Problem, reason and remedy; reason and remedy may be empty."""

    what: str
    why: str = ""
    remedy: str = ""


class ExplainedError(RmqError):
    """A failure with its reason and remedy; a refusal is the answer of a server."""

    def __init__(self, failure: Failure, *, is_refusal: bool = False) -> None:
        super().__init__(failure.what)
        self.failure = failure
        self.is_refusal = is_refusal


class Subject(NamedTuple):
    """Topic, group and action of a failed command, as far as they are known."""

    topic: str = ""
    group: str = ""
    action: str = "Get"
    """The action that an access rule must allow: Pub, Sub or others."""


NO_SUBJECT: Final = Subject()


def explain(
    error: RmqError, admin: AdminClient | None = None, subject: Subject = NO_SUBJECT
) -> Failure:
    """Return the lines of an error; `admin` looks up similar names."""
    text = str(error)
    if isinstance(error, ExplainedError):
        return error.failure
    if isinstance(error, NotTrusted):
        return Failure(text, *_CERTIFICATE_FAILURES[error.kind])
    if isinstance(error, TlsWanted):
        why = "the server closed the plain connection (tls.server.mode=enforcing)"
        return Failure(text, why, "--tls --ca server-ca.pem")
    if isinstance(error, ConnectFailed):
        return _explain_connect_failure(error, admin)
    if isinstance(error, NoBroker):
        return _explain_no_broker(error)
    if isinstance(error, SeveralRegistered):
        return Failure(text, "the command needs exactly one", error.remedy)
    if isinstance(error, GroupUnknown) and admin:
        why, near = suggest_name("group", error.name, admin.groups)
        return Failure(text, f"{why}; did you mean {near}" if near else why)
    if isinstance(error, AnswerRefused):
        return _explain_refusal(error, admin, subject)
    if "does not speak the protocol of RocketMQ" in text:
        is_web = HTTP_AS_LENGTH in text
        why = "the server answers with HTTP: it is a web server" if is_web else ""
        return Failure(
            text.partition(": ")[0],
            why,
            "-n HOST:9876 with the address of a name server",
        )
    if isinstance(error, CertificateWanted):
        why = "the server probably requires a client certificate"
        return Failure(text, why, "--tls-cert FILE --tls-key FILE")
    return Failure(text)


def _explain_connect_failure(
    error: ConnectFailed, admin: AdminClient | None
) -> Failure:
    text, cause = str(error), error.__cause__
    if isinstance(cause, ConnectionRefusedError):
        return _explain_nobody(text, admin)
    if isinstance(cause, ValueError):
        return Failure(
            text, "", "-n and -b take HOST:PORT, -B needs the name of a broker"
        )
    if "does not offer TLS" in text:
        return Failure(text, "", "omit --tls, or configure a certificate at the server")
    return Failure(text)


def _explain_nobody(text: str, admin: AdminClient | None) -> Failure:
    """Explain that no process listens at an address, the first word of the text."""
    why, address = "no process listens there", text.partition(" ")[0]
    if admin is not None and address not in admin.name_servers:
        return Failure(text, why, "start this broker, or check brokerIP1 in its file")
    why += "; -n HOST:PORT names another name server"
    try:
        host, port = Address.parse(address)
    except ValueError:
        return Failure(text, why)
    if not is_loopback(host):
        return Failure(text, why, f"start the name server on {host}")
    is_usual = str(port) == DEFAULT_PORT
    option = "" if is_usual else f" --set rmq.namesrv.listenPort={port}"
    if host not in ("127.0.0.1", "localhost"):
        option += f" --set bindAddress={host}"
    return Failure(text, why, f"rmq broker{option}")


def _explain_no_broker(error: NoBroker) -> Failure:
    if error.cluster:
        return Failure(str(error), "", "rmq admin clusterList")
    return Failure(
        str(error),
        "only a name server runs there; a broker registers after its start",
        f"rmq broker -n {error.name_server}",
    )


def _explain_refusal(
    error: AnswerRefused, admin: AdminClient | None, subject: Subject
) -> Failure:
    if error.code == ResponseCode.NO_PERMISSION:
        return _explain_no_permission(error, subject)
    if error.code == ResponseCode.TOPIC_NOT_EXIST and subject.topic and admin:
        return explain_no_topic(subject.topic, admin)
    if error.code == ResponseCode.CONSUMER_NOT_ONLINE and subject.group and admin:
        return _explain_nobody_online(subject.group, admin)
    if SQL_REFUSED in error.remark:
        return Failure(
            f"{error.address} does not serve SQL92 filters",
            "enablePropertyFilter is false there",
            "rmq admin updateBrokerConfig -k enablePropertyFilter -v true",
        )
    return Failure(str(error))


def explain_no_topic(topic: str, admin: AdminClient) -> Failure:
    """Return why there is no route of a topic, with the remedy."""
    try:
        if not admin.brokers():
            return _explain_no_broker(NoBroker(admin.name_servers))
        names = admin.user_topics()
    except RmqError:
        names = []
    why, near = suggest_name("topic", topic, lambda: names)
    if near:
        return Failure(f"there is no topic {topic}", f"{why}; did you mean {near}", "")
    return Failure(
        f"there is no topic {topic}", why, f"rmq topic create {shlex.quote(topic)}"
    )


def _explain_nobody_online(group: str, admin: AdminClient) -> Failure:
    what = f"group {group} has no consumer online"
    try:
        names = admin.groups()
    except RmqError:
        names = []
    if group in names:
        return Failure(what, "", f"rmq group info {shlex.quote(group)}")
    why, near = suggest_name("group", group, lambda: names)
    return Failure(what, f"{why}; did you mean {near}" if near else why, "")


def _explain_no_permission(error: AnswerRefused, subject: Subject) -> Failure:
    remark = error.remark.strip()
    why = f"{error.address} answered {error.code}: {remark}"
    for pattern, what, remedy in _NOT_SIGNED:
        if match := pattern.search(remark):
            return Failure(match.expand(what), why, remedy)
    if match := _NO_PERMISSION.search(remark):
        user, resource, source, reason = match.groups()
        return Failure(
            f"user {user} has no permission for this on {resource}",
            f"from {source}: {reason.rstrip('.')}; a super user can allow it",
            f"rmq user allow {shlex.quote(user)} {shlex.quote(resource)} "
            f"{subject.action}",
        )
    return Failure(str(error))


def suggest_name(
    kind: str, name: str, names: Callable[[], Iterable[str]]
) -> tuple[str, str]:
    """Return the number of known names, and the most similar one with `?`."""
    # imported on use: few names are wrong
    from rmq.config.option import nearest_name

    try:
        known = sorted(names())
    except RmqError:
        return "", ""
    near = nearest_name(name, [each for each in known if each != name])
    number = f"is 1 {kind}" if len(known) == 1 else f"are {len(known) or 'no'} {kind}s"
    count = f"there {number}"
    return count, f"{near}?" if near else ""


def print_failure(failure: Failure) -> None:
    """Print the lines to stderr."""
    # imported on use: success needs no logging
    from rmq.core.logs import escape_text

    failure = failure._replace(remedy=add_connection_options(failure.remedy))
    marks = "rmq: ", "     ", "  -> "
    for mark, line in zip(marks, failure, strict=True):
        if line:
            click.echo(mark + escape_text(line), err=True)


def add_connection_options(remedy: str) -> str:
    """Return a command with the options by which this one found its servers."""
    context = click.get_current_context(silent=True)
    name, _, rest = remedy.partition(" ")
    is_tool = name == "rmq" and rest.partition(" ")[0] not in RootGroup.servers
    if context is None or not is_tool:
        return remedy
    words = [remedy]
    for each in context.command.params:
        name, opts = each.name or "", each.opts
        source = context.get_parameter_source(name)
        if name in CONNECTION_PARAMETERS and source is ParameterSource.COMMANDLINE:
            is_given = f" {opts[0]} " in remedy
            value = context.params[name]
            words += [] if is_given else [opts[0]]
            words += [] if is_given or value is True else [shlex.quote(value)]
    return " ".join(words)


def exit_code(error: RmqError) -> int:
    """Return the exit code of a command that failed with this error."""
    if isinstance(error, PeerError):
        return UNREACHABLE
    if isinstance(error, ExplainedError):
        return REFUSED if error.is_refusal else FAILED
    is_refusal = isinstance(error, AnswerRefused | GroupUnknown | BrokerUnknown)
    return REFUSED if is_refusal else FAILED


def exit_with_error(
    error: RmqError, admin: AdminClient | None = None, subject: Subject = NO_SUBJECT
) -> NoReturn:
    """Print an explanation of an error and exit with its code."""
    print_failure(explain(error, admin, subject))
    sys.exit(exit_code(error))
