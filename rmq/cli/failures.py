"""Failures on stderr: problem, reason and remedy; and the exit codes.

    rmq: 127.0.0.1:9876 refuses the connection
         no process listens there
      -> rmq broker, or -n HOST:9876

Frequent errors have all three lines, others only the first.
"""

import re
import sys
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, NoReturn

import click

from rmq.client.admin import AdminClient, GroupUnknown
from rmq.core.errors import (
    CertificateWanted,
    ConnectFailed,
    NotTrusted,
    PeerError,
    RmqError,
    TlsWanted,
)
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import ResponseCode

FAILED: Final = 1
UNREACHABLE: Final = 3
INTERRUPTED: Final = 130
"""The exit code of shells for Ctrl-C."""

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
_NO_PERMISSION: Final = re.compile(
    r"User:(\S+) has no permission to access (\S+) from (\S+), (.*)", re.DOTALL
)


_NOT_SIGNED: Final = (
    (re.compile("username cannot be null"), "this broker requires a user",
     "RMQ_USER and RMQ_PASSWORD_FILE"),
    (re.compile("check signature failed"), "the password is wrong",
     "RMQ_PASSWORD_FILE"),
    (re.compile(r"User:(\S+) is not found"), r"there is no user \1",
     "RMQ_USER, or rmq admin createUser"),
)  # fmt: skip
"""Java's remarks: these refusals share one code, and only the remark differs."""


class Failure(NamedTuple):
    """Problem, reason and remedy; reason and remedy may be empty."""

    what: str
    why: str = ""
    remedy: str = ""


class Subject(NamedTuple):
    """Topic, group and action of a failed command, as far as known."""

    topic: str = ""
    group: str = ""
    action: str = "…"
    """The action that an access rule must allow: Pub, Sub or others."""


NO_SUBJECT: Final = Subject()


def explain(
    error: RmqError, admin: AdminClient | None = None, subject: Subject = NO_SUBJECT
) -> Failure:
    """Return the lines of an error; `admin` looks up similar names."""
    text = str(error)
    if isinstance(error, NotTrusted):
        return Failure(text, *_CERTIFICATE_FAILURES[error.kind])
    if isinstance(error, TlsWanted):
        why = "the server closed the plain connection (tls.server.mode=enforcing)"
        return Failure(text, why, "--tls --ca server-ca.pem")
    if isinstance(error, ConnectFailed):
        return _explain_connect_failure(error)
    if isinstance(error, GroupUnknown) and admin:
        return Failure(text, *suggest_name("group", error.name, admin.groups))
    if isinstance(error, AnswerRefused):
        return _explain_refusal(error, admin, subject)
    if "does not speak the protocol of RocketMQ" in text:
        is_web = HTTP_AS_LENGTH in text
        why = "the server answers in HTTP: it is a web server" if is_web else ""
        return Failure(
            text.partition(": ")[0],
            why,
            "-n HOST:9876 with the address of a name server",
        )
    if isinstance(error, CertificateWanted):
        why = "the server probably requires a client certificate"
        return Failure(text, why, "--tls-cert FILE --tls-key FILE")
    return Failure(text)


def _explain_connect_failure(error: ConnectFailed) -> Failure:
    text, cause = str(error), error.__cause__
    if isinstance(cause, ConnectionRefusedError):
        return Failure(text, "no process listens there", "rmq broker, or -n HOST:9876")
    if isinstance(cause, ValueError):
        return Failure(
            text, "", "-n and -b take HOST:PORT, -B takes the name of a broker"
        )
    if "does not offer TLS" in text:
        return Failure(text, "", "omit --tls, or configure a certificate at the server")
    return Failure(text)


def _explain_refusal(
    error: AnswerRefused, admin: AdminClient | None, subject: Subject
) -> Failure:
    if error.code == ResponseCode.NO_PERMISSION:
        return _explain_no_permission(error, subject)
    if error.code == ResponseCode.TOPIC_NOT_EXIST and subject.topic and admin:
        hint = suggest_name("topic", subject.topic, admin.topics)
        return Failure(f"there is no topic {subject.topic}", *hint)
    if error.code == ResponseCode.CONSUMER_NOT_ONLINE and subject.group and admin:
        hint = suggest_name("group", subject.group, admin.groups)
        if not hint[1]:
            hint = error.remark.strip(), ""
        return Failure(f"group {subject.group} has no consumer online", *hint)
    return Failure(str(error))


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
            f"from {source}: {reason}",
            f"rmq admin createAcl -s User:{user} -r {resource} -a {subject.action} "
            "-d Allow",
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
    near = nearest_name(name, known)
    count = f"there {'is' if len(known) == 1 else 'are'} {len(known)} {kind}" + "s" * (
        len(known) != 1
    )
    return count, f"{near}?" if near else ""


def print_failure(failure: Failure) -> None:
    """Print the lines to stderr."""
    # imported on use: success needs no logging
    from rmq.core.logs import escape_text

    marks = "rmq: ", "     ", "  -> "
    for mark, line in zip(marks, failure, strict=True):
        if line:
            click.echo(mark + escape_text(line), err=True)


def exit_with_error(
    error: RmqError, admin: AdminClient | None = None, subject: Subject = NO_SUBJECT
) -> NoReturn:
    """Print an explanation of an error and exit with its code."""
    print_failure(explain(error, admin, subject))
    sys.exit(UNREACHABLE if isinstance(error, PeerError) else FAILED)
