"""Errors of `rmq.client`; each text names broker, topic or group, and the remedy.

Calls to one address also raise `PeerError` and its kinds from `rmq.core.errors`.
"""

import os
import re
from collections.abc import Sequence
from typing import Final, Self

from rmq._fastpath.client.messages import SendResult
from rmq.client.core.routes import MessageQueue
from rmq.core.errors import (
    CertificateWanted,
    NotTrusted,
    PeerError,
    RmqError,
    TlsNotOffered,
    TlsWanted,
    WrongProtocol,
)
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import ResponseCode

_NOT_AUTHORIZED: Final = re.compile(
    r"username cannot be null|check signature failed|authorization failed"
    r"|User:\S+ (is not found|not found|is disabled|has no permission)|AclException",
    re.IGNORECASE,
)
"""Remarks for the user of a request; other refusals have the same code."""

_TLS_ERRORS: Final = (NotTrusted, TlsNotOffered, TlsWanted, CertificateWanted)


class ClientError(RmqError):
    """Base of the errors of producers and consumers."""


class ClientClosed(ClientError):
    """The client was closed, or never opened."""


class ClientForked(ClientError):
    """The client was made in another process."""

    def __init__(self, made_in: int) -> None:
        super().__init__(
            f"process {made_in} created this client, not process {os.getpid()}: create "
            "it after the fork, for example in gunicorn's post_fork"
        )


class NameServerUnreachable(ClientError):
    """No name server has answered; `__cause__` is the first failure."""

    def __init__(self, name_servers: Sequence[str], reason: object) -> None:
        names = ";".join(name_servers)
        super().__init__(f"no name server of {names} answers: {reason}")
        self.name_servers = tuple(name_servers)


class TlsFailed(ClientError):
    """TLS cannot be used: a certificate is refused, or only one side wants TLS."""


class NoRoute(ClientError):
    """The name servers have no queue of a topic, or no broker of the topic is online.

    `is_unknown`: brokers are online, the topic does not exist, and no send creates it.
    """

    def __init__(
        self,
        topic: str,
        name_servers: Sequence[str],
        reason: str,
        *,
        is_unknown: bool = False,
    ) -> None:
        super().__init__(
            f"no name server of {';'.join(name_servers)} knows topic {topic} "
            f"({reason}): create the topic, or allow autoCreateTopicEnable"
        )
        self.topic = topic
        self.is_unknown = is_unknown


class NoBroker(NoRoute):
    """A topic has no route, because no broker of the topic is registered or accepts
    messages.
    """

    def __init__(self, topic: str, name_servers: Sequence[str], reason: str) -> None:
        super().__init__(topic, name_servers, reason)
        names = ";".join(name_servers)
        self.args = (f"topic {topic} has no route by name server {names}: {reason}",)


class Refused(ClientError, AnswerRefused):
    """A server has refused a request; `address`, `code` and `remark` are the answer."""


class NotAuthorized(Refused):
    """The user, the password or a right is missing or wrong."""


class NotAssigned(ClientError):
    """A queue is not assigned to this consumer."""

    def __init__(self, queue: MessageQueue) -> None:
        super().__init__(f"{queue} is not assigned to this consumer")
        self.queue = queue


class SubscriptionRefused(Refused):
    """A broker refuses the expression of a subscription."""

    def __init__(self, expression: str, address: str, code: int, remark: str) -> None:
        super().__init__(address, code, remark)
        self.args = (f"the subscription {expression!r} is refused: {remark.strip()}",)
        self.expression = expression


class OffsetRefused(Refused):
    """A broker refuses to return or to commit an offset."""

    def __init__(self, action: str, address: str, code: int, remark: str) -> None:
        super().__init__(address, code, remark)
        self.args = (f"{action} is refused by {address}: {code}: {remark.strip()}",)


class TransactionFailed(ClientError):
    """A transaction could not be ended; the broker will ask the checker."""


class RequestTimeout(ClientError):
    """No consumer replied to a request in time."""


class SendFailed(ClientError):
    """No broker has confirmed a message; if `may_be_stored`, a broker may have stored
    the message.
    """

    def __init__(
        self, text: str, topic: str, queue: MessageQueue | None, attempts: int
    ) -> None:
        RmqError.__init__(self, text)  # a refusal has another base, too
        self.topic = topic
        self.queue = queue
        self.attempts = attempts
        self.may_be_stored = False


class SendRefused(SendFailed, Refused):
    """The broker refused the message; only an earlier attempt may have stored the
    message.
    """

    def __init__(
        self, queue: MessageQueue, address: str, attempts: int, code: int, remark: str
    ) -> None:
        Refused.__init__(self, address, code, remark)
        text = (
            f"broker {queue.broker} ({address}) refused a message for {queue.topic}: "
            f"{code} {self.name}: {remark.strip()}"
        )
        SendFailed.__init__(self, text, queue.topic, queue, attempts)


class SendNotAuthorized(SendRefused, NotAuthorized):
    """The broker refused a message because of the user, the password or a missing
    right.
    """


class SendTimeout(SendFailed):
    """No broker answered in time; the message may be stored."""


class SendManyFailed(ClientError, ExceptionGroup[ClientError]):
    """Some messages of a call were not sent; `results` has an entry for each."""

    def __new__(
        cls,
        errors: Sequence[ClientError],
        results: Sequence["SendResult | ClientError"] = (),
    ) -> Self:
        """Make the group of the failures."""
        text = f"some of {len(results)} messages were not sent"
        return super().__new__(cls, text, errors)

    def __init__(
        self,
        errors: Sequence[ClientError],
        results: Sequence["SendResult | ClientError"] = (),
    ) -> None:
        super().__init__(
            f"{len(errors)} of {len(results)} messages were not sent", errors
        )
        self.results = list(results)

    def derive(  # type: ignore[override] # of one kind of error
        self, errors: Sequence[ClientError]
    ) -> "SendManyFailed":
        """Return a group of some of the failures, as `except*` does."""
        return SendManyFailed(errors, self.results)


def refusal_of(address: str, code: int, remark: str | None) -> Refused:
    """Return the error for the answer of a server."""
    kind = NotAuthorized if is_about_user(code, remark) else Refused
    return kind(address, code, remark or "")


def is_about_user(code: int, remark: str | None) -> bool:
    """Whether an answer refuses the user of the request, and not the request."""
    codes = ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR
    return code in codes and _NOT_AUTHORIZED.search(remark or "") is not None


def is_lasting(error: BaseException) -> bool:
    """Whether a repetition of the call cannot succeed."""
    if isinstance(error, NameServerUnreachable):
        cause = error.__cause__
        is_away = isinstance(cause, PeerError) and not isinstance(cause, WrongProtocol)
        return isinstance(cause, RmqError) and not is_away
    if isinstance(error, Refused):
        return is_about_user(error.code, error.remark)
    return isinstance(error, (*_TLS_ERRORS, TlsFailed, ClientClosed))


def client_error_of(error: PeerError) -> RmqError:
    """Return TlsFailed for a failure of TLS, or the given error."""
    if not isinstance(error, _TLS_ERRORS):
        return error
    remedy = "use tls=Trust(ca=...)" if isinstance(error, TlsWanted) else "see Trust"
    failed = TlsFailed(f"{error}: {remedy}")
    failed.__cause__ = error
    return failed
