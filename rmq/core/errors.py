"""Every error that rmq raises, on one page.

Expected outcomes, such as a queue without new messages, are values: `PutStatus`,
`GetStatus`. These errors mean bad input, a broken peer or a broken store. A broken
invariant of rmq itself is an `assert`.
"""

from typing import TypeVar


class RmqError(Exception):
    """Base of every error below."""


ErrorType = TypeVar("ErrorType", bound=RmqError)


def copy_error(error: ErrorType) -> ErrorType:
    """Return a copy without the traceback, for a failure that several calls share."""
    new = type(error).__new__(type(error), *error.args)
    new.__dict__.update(error.__dict__)
    new.__cause__ = error.__cause__
    return new


class ConfigError(RmqError):
    """A configuration key, file or flag is wrong; the text names the remedy.

    `keys`: with another value of one of these keys the error does not occur; empty if
    there is no such key.
    """

    def __init__(self, text: str, *keys: str) -> None:
        super().__init__(text)
        self.keys = keys


class BadValue(ConfigError):
    """The value of one key cannot be used."""

    def __init__(self, key: str, value: object, reason: object) -> None:
        super().__init__(f"{key}={value}: {reason}", key)


class PluginError(RmqError):
    """A plugin cannot be loaded, or two plugins claim the same code or name."""

    def __init__(self, plugin: str, reason: str) -> None:
        super().__init__(f"plugin {plugin}: {reason}")
        self.plugin = plugin
        self.reason = reason


class ProtocolError(RmqError):
    """Bytes or values that the remoting protocol does not allow."""


class LocalProtocolError(ProtocolError):
    """The call of this process is wrong: a value cannot be encoded."""


class RemoteProtocolError(ProtocolError):
    """The peer is wrong: the stream can no longer be framed or decoded."""


class RequestRejected(RmqError):
    """A refused request; only dispatch turns it into an answer."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{code}: {remark}")
        self.code = code
        self.remark = remark


class PeerError(RmqError):
    """An outgoing request got no answer."""


class ConnectFailed(PeerError):
    """No connection to the address."""


class NotTrusted(ConnectFailed):
    """A server's certificate is refused; `kind` is expired, early, name or signer."""

    def __init__(self, address: str, kind: str, reason: str) -> None:
        super().__init__(f"the certificate of {address} is refused: {reason}")
        self.kind = kind


class TlsNotOffered(ConnectFailed):
    """The server does not answer a TLS handshake with TLS."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address} does not offer TLS: {reason}")


class InvokeTimeout(PeerError):
    """No answer came in time."""


class PeerClosed(PeerError):
    """The connection was closed before the answer came."""


class WrongProtocol(PeerClosed):
    """The peer does not speak the protocol of RocketMQ."""


class CertificateWanted(PeerClosed):
    """The server closed a TLS connection on which the client presented no
    certificate.
    """


class TlsWanted(PeerClosed):
    """The server closed a plain connection, and accepts TLS."""


class EngineAway(RmqError):
    """A controller's engine did not confirm a change, which may have been made or
    not.
    """


class TermLost(EngineAway):
    """Another controller leads, so this controller has not made the change."""


class StoreError(RmqError):
    """The store cannot do a requested action."""


class CorruptLog(StoreError):
    """A stored record or file violates the format."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path} at offset {offset}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason


class Diverged(StoreError):
    """The log of a slave cannot continue with the bytes that its master sends."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"at offset {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class RecordDamaged(StoreError):
    """The disk returned other bytes than were written; a later read may find the right
    bytes.
    """

    def __init__(self, offset: int, block: int, *, is_healing: bool = True) -> None:
        """`block` is the offset of the block with other bytes."""
        rest = "this broker gets its bytes from another one: try again"
        if not is_healing:
            rest = "no broker is known that has its bytes, and rmq.onDamage is STOP"
        super().__init__(f"the record at {offset} of the log is damaged; {rest}")
        self.offset = offset
        self.block = block


class EntryDamaged(RecordDamaged):
    """A queue entry is not the entry of its record; a later read may find it right."""

    def __init__(self, topic: str, queue_id: int, offset: int) -> None:
        StoreError.__init__(
            self,
            f"the entry of queue offset {offset} of {topic!r}/{queue_id} is damaged; "
            "this broker makes it again from its record: try again",
        )
        self.offset = offset
        self.block = -1


class StoreClosed(StoreError):
    """The store was closed, or never opened."""


class DiskFull(StoreError):
    """The file system has no free blocks."""


class DiskBusy(StoreError):
    """The disk writes bytes more slowly than messages arrive, and the memory for them
    is full.
    """


class LogFailed(StoreError):
    """The log cannot be written or made durable: the store refuses new messages."""
