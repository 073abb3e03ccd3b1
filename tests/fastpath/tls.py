"""TLS between a test and the reactor: handshakes in memory, peers, records by hand."""

import hashlib
import hmac
import ssl
import struct
import tempfile
from functools import cache

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rmq._fastpath.reactor.tls_layer import TlsLayer
from rmq.remoting.self_signed import add_self_signed

DATA, ALERT, HANDSHAKE = 23, 21, 22
KEY_UPDATE = b"\x18\0\0\1"
RECORD = 16_384
SOCKET_TAKES = 50_000


@cache
def server_context():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    add_self_signed(context)
    return context


def client_context(version=ssl.TLSVersion.TLSv1_3):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    return context


def shake_hands(context):
    """Make a handshake in memory: both ends with their BIOs, (ssl, incoming, outgoing).

    The tickets of the server wait in the client's incoming BIO.
    """
    ends = []
    for made, is_server in ((context, False), (server_context(), True)):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = made.wrap_bio(incoming, outgoing, server_side=is_server)
        ends.append((tls, incoming, outgoing))
    is_done = [False, False]
    while not all(is_done):
        for number, (tls, _, outgoing) in enumerate(ends):
            try:
                tls.do_handshake()
                is_done[number] = True
            except ssl.SSLWantReadError:
                pass
            ends[1 - number][1].write(outgoing.read())
    return ends


class TlsPeer:
    """The client's end of a connection; it has the methods of a socket that tests use.

    `record_size` bytes go into each record, `segment_size` of these into each segment.
    """

    def __init__(
        self, plain, *, record_size=RECORD, segment_size=0, context=None, first=b""
    ):
        """`first` goes to the server with the end of the handshake."""
        self.plain = plain
        self.record_size, self.segment_size = record_size, segment_size
        (client, self._incoming, self._outgoing), server = shake_hands(
            context or client_context()
        )
        self.tls = client
        tls, incoming, outgoing = server
        incoming.write(self.records(first))
        self.layer = TlsLayer(tls, incoming, outgoing)

    def records(self, data):
        """Encrypt data."""
        for at in range(0, len(data), self.record_size):
            self.tls.write(data[at : at + self.record_size])
        return self._outgoing.read()

    def segments(self, data):
        """Encrypt data; the bytes for each send."""
        records = self.records(data)
        size = self.segment_size or SOCKET_TAKES
        return [records[at : at + size] for at in range(0, len(records), size)]

    def sendall(self, data):
        self.send_wire(self.records(data))

    def send_wire(self, records):
        self.plain.sendall(records)

    def recv(self, limit):
        """Receive decrypted bytes; b"" at the end of TLS."""
        while True:
            try:
                return self.tls.read(limit)
            except ssl.SSLWantReadError:
                data = self.plain.recv(65_536)
                if not data:
                    raise ConnectionAbortedError("no close notify") from None
                self._incoming.write(data)

    def setblocking(self, is_blocking):
        self.plain.setblocking(is_blocking)

    def close(self):
        self.plain.close()


class RecordWriter:
    """Writes TLS 1.3 records that no library would send, with the keys of a client."""

    def __init__(self, peer, secret):
        self._peer = peer
        self._sequence = 0
        self._set_keys(secret)

    @classmethod
    def connect(cls, plain):
        """Return (peer, writer); the peer itself must send nothing then."""
        with tempfile.NamedTemporaryFile("r") as log:
            context = client_context()
            context.keylog_filename = log.name
            peer = TlsPeer(plain, context=context)
            secrets = {
                line.split()[0]: line.split()[2] for line in log if line[0] != "#"
            }
        assert peer.tls.cipher()[0] == "TLS_AES_256_GCM_SHA384"
        return peer, cls(peer, bytes.fromhex(secrets["CLIENT_TRAFFIC_SECRET_0"]))

    def _set_keys(self, secret):
        self._secret = secret
        self._key = AESGCM(_expand(secret, b"key", 32))
        self._iv = int.from_bytes(_expand(secret, b"iv", 12))

    def record(self, content, kind=DATA):
        """Return a record with this inner type."""
        inner = content + bytes([kind])
        head = struct.pack(">BHH", DATA, 0x0303, len(inner) + 16)
        nonce = (self._iv ^ self._sequence).to_bytes(12)
        self._sequence += 1
        return head + self._key.encrypt(nonce, inner, head)

    def key_update(self, *, wants_answer=True):
        """Return a record that changes the keys, and use the new ones."""
        record = self.record(KEY_UPDATE + bytes([wants_answer]), HANDSHAKE)
        self._sequence = 0
        self._set_keys(_expand(self._secret, b"traffic upd", 48))
        return record


def _expand(secret, label, size):
    """HKDF-Expand-Label of RFC 8446 with SHA-384, up to one block."""
    name = b"tls13 " + label
    info = struct.pack(">HB", size, len(name)) + name + b"\0\1"
    return hmac.digest(secret, info, hashlib.sha384)[:size]
