"""The Python client: producers and consumers under asyncio, uvloop and trio.

`rmq.client.blocking` has the same for threads. Names are imported on first use, so a
tool imports only the modules that it needs.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from rmq._fastpath.client.messages import Delivery as Delivery
    from rmq._fastpath.client.messages import ReceivedMessage as ReceivedMessage
    from rmq._fastpath.client.messages import SendResult as SendResult
    from rmq._fastpath.client.messages import SendStatus as SendStatus
    from rmq.client.client import Client as Client
    from rmq.client.consumer import Consumer as Consumer
    from rmq.client.core.routes import MessageQueue as MessageQueue
    from rmq.client.errors import ClientClosed as ClientClosed
    from rmq.client.errors import ClientError as ClientError
    from rmq.client.errors import ClientForked as ClientForked
    from rmq.client.errors import NameServerUnreachable as NameServerUnreachable
    from rmq.client.errors import NoBroker as NoBroker
    from rmq.client.errors import NoRoute as NoRoute
    from rmq.client.errors import NotAssigned as NotAssigned
    from rmq.client.errors import NotAuthorized as NotAuthorized
    from rmq.client.errors import OffsetRefused as OffsetRefused
    from rmq.client.errors import Refused as Refused
    from rmq.client.errors import RequestTimeout as RequestTimeout
    from rmq.client.errors import SendFailed as SendFailed
    from rmq.client.errors import SendManyFailed as SendManyFailed
    from rmq.client.errors import SendRefused as SendRefused
    from rmq.client.errors import SendTimeout as SendTimeout
    from rmq.client.errors import SubscriptionRefused as SubscriptionRefused
    from rmq.client.errors import TlsFailed as TlsFailed
    from rmq.client.errors import TransactionFailed as TransactionFailed
    from rmq.client.hooks import Hook as Hook
    from rmq.client.message import Message as Message
    from rmq.client.message_trace import MessageTrace as MessageTrace
    from rmq.client.offsets import FileOffsets as FileOffsets
    from rmq.client.producer import Producer as Producer
    from rmq.client.subscription import Sql as Sql
    from rmq.client.telemetry import OpenTelemetry as OpenTelemetry
    from rmq.client.transaction import Transaction as Transaction
    from rmq.outgoing.identity import Trust as Trust
    from rmq.outgoing.signing import Credentials as Credentials

_MODULES = {
    "client": "Client",
    "consumer": "Consumer",
    "core.routes": "MessageQueue",
    "errors": "ClientClosed ClientError ClientForked NameServerUnreachable NoBroker "
    "NoRoute NotAssigned NotAuthorized OffsetRefused Refused RequestTimeout SendFailed "
    "SendManyFailed SendRefused SendTimeout SubscriptionRefused TlsFailed "
    "TransactionFailed",
    "hooks": "Hook",
    "message": "Message",
    "message_trace": "MessageTrace",
    "offsets": "FileOffsets",
    "producer": "Producer",
    "subscription": "Sql",
    "telemetry": "OpenTelemetry",
    "transaction": "Transaction",
}
_HOMES = {
    name: f"rmq.client.{module}"
    for module, names in _MODULES.items()
    for name in names.split()
} | {
    "Credentials": "rmq.outgoing.signing",
    "Trust": "rmq.outgoing.identity",
    **dict.fromkeys(
        ("Delivery", "ReceivedMessage", "SendResult", "SendStatus"),
        "rmq._fastpath.client.messages",
    ),
}

__all__ = [
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientForked",
    "Consumer",
    "Credentials",
    "Delivery",
    "FileOffsets",
    "Hook",
    "Message",
    "MessageQueue",
    "MessageTrace",
    "NameServerUnreachable",
    "NoBroker",
    "NoRoute",
    "NotAssigned",
    "NotAuthorized",
    "OffsetRefused",
    "OpenTelemetry",
    "Producer",
    "ReceivedMessage",
    "Refused",
    "RequestTimeout",
    "SendFailed",
    "SendManyFailed",
    "SendRefused",
    "SendResult",
    "SendStatus",
    "SendTimeout",
    "Sql",
    "SubscriptionRefused",
    "TlsFailed",
    "Transaction",
    "TransactionFailed",
    "Trust",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__all__", "__doc__", "__name__", "blocking"})
