"""Requests in TLS records, a record each, through a reactor.

`ssl` alone is the floor: one read for each record.
"""

import ssl

from tests.fastpath.tls import client_context, shake_hands
from tests.fastpath.wire import Wire, tiny

RECORDS = 16


def bench_a_record_each(benchmark):
    """Receive, decrypt and hand over 16 frames; the peer encrypts them before."""
    wire = Wire()
    _, peer = wire.connect_tls()

    def send():
        peer.send_wire(b"".join(peer.records(tiny(n)) for n in range(RECORDS)))

    def turn():
        wire.reactor.poll(0)
        assert len(wire.reactor.take_events()) == RECORDS
        wire.reactor.flush()

    benchmark.pedantic(turn, setup=send, rounds=200)
    wire.close()


def bench_the_same_by_ssl_alone(benchmark):
    (client, _, outgoing), (server, incoming, _) = shake_hands(client_context())
    room = bytearray(16_384)

    def send():
        for n in range(RECORDS):
            client.write(tiny(n))
        incoming.write(outgoing.read())

    def turn():
        for _ in range(RECORDS):
            server.read(len(room), room)

    benchmark.pedantic(turn, setup=send, rounds=200)
    assert isinstance(server, ssl.SSLObject)
