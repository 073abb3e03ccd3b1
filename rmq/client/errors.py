"""Errors of `rmq.client`; each text names broker, topic or group, and the remedy.

Calls to one address also raise `PeerError` and its kinds from `rmq.core.errors`.
"""

import os
from collections.abc import Sequence
from typing import Self

from rmq._fastpath.client.messages import SendResult
from rmq.client.core.routes import MessageQueue
from rmq.core.errors import RmqError
from rmq.protocol.codes import ResponseCode


class ClientError(RmqError):
    """Base of the errors of producers and consumers."""


class ClientClosed(ClientError):
    """The client was closed, or never opened."""


class ClientForked(ClientError):
    """The client was made in another process."""

    def __init__(self, made_in: int) -> None:
        super().__init__(
            f"made in process {made_in}, not {os.getpid()}: make it after the fork, "
            "for instance in gunicorn's post_fork"
        )


class NoRoute(ClientError):
    """No name server knows the topic, or no broker of it is online."""

    def __init__(self, topic: str, name_servers: Sequence[str], reason: str) -> None:
        super().__init__(
            f"no name server of {';'.join(name_servers)} knows topic {topic} "
            f"({reason}): create it, or allow autoCreateTopicEnable"
        )
        self.topic = topic


class NotAssigned(ClientError):
    """A queue is not assigned to this consumer."""

    def __init__(self, queue: MessageQueue) -> None:
        super().__init__(f"{queue} is not assigned to this consumer")
        self.queue = queue


class SubscriptionRefused(ClientError):
    """A broker refuses the expression of a subscription."""

    def __init__(self, expression: str, remark: str) -> None:
        super().__init__(f"the subscription {expression!r} is refused: {remark}")
        self.expression = expression
        self.remark = remark


class OffsetRefused(ClientError):
    """A broker refuses to return or to commit an offset."""


class TransactionFailed(ClientError):
    """A transaction could not be ended; the broker will ask the checker."""


class RequestTimeout(ClientError):
    """No consumer replied to a request in time."""


class SendFailed(ClientError):
    """A message was not sent; with `may_be_stored` a broker may have stored it."""

    def __init__(
        self, text: str, topic: str, queue: MessageQueue | None, attempts: int
    ) -> None:
        super().__init__(text)
        self.topic = topic
        self.queue = queue
        self.attempts = attempts
        self.may_be_stored = False


class SendRefused(SendFailed):
    """The broker refused it; only an earlier attempt may have stored it."""

    def __init__(
        self, queue: MessageQueue, address: str, attempts: int, code: int, remark: str
    ) -> None:
        try:
            name = ResponseCode(code).name
        except ValueError:
            name = "unknown"
        super().__init__(
            f"{queue.broker} ({address}) refused a message for {queue.topic}: "
            f"{code} {name}: {remark.strip()}",
            queue.topic,
            queue,
            attempts,
        )
        self.address = address
        self.code = code
        self.remark = remark


class SendTimeout(SendFailed):
    """No broker answered in time; the message may be stored."""


class SendManyFailed(ClientError, ExceptionGroup[ClientError]):
    """Some of many messages were not sent; `results` has one entry for each."""

    def __new__(
        cls,
        errors: Sequence[ClientError],
        results: Sequence["SendResult | ClientError"] = (),
    ) -> Self:
        """Make the group of the failures."""
        text = f"of {len(results)} messages these were not sent"
        return super().__new__(cls, text, errors)

    def __init__(
        self,
        errors: Sequence[ClientError],
        results: Sequence["SendResult | ClientError"] = (),
    ) -> None:
        super().__init__(f"{len(errors)} of {len(results)} were not sent", errors)
        self.results = list(results)

    def derive(  # type: ignore[override] # of one kind of error
        self, errors: Sequence[ClientError]
    ) -> "SendManyFailed":
        """Return a group of some of the failures, as `except*` does."""
        return SendManyFailed(errors, self.results)
