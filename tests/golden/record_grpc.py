"""Record conversations of gRPC SDKs with rmq: `python -m tests.golden.record_grpc`.

Arguments are beginnings of names of SDKs: without one, all are recorded.

Each SDK of tests/interop sends COUNT messages to a broker, receives and acks them. A
tee between them writes a row for each chunk of bytes:

    sdk     name and version of the SDK
    conn    number of the connection
    dir     c2s or s2c
    raw     base64 of the bytes

SDKs whose toolchain this machine lacks keep their old rows.
"""

import base64
import json
import lzma
import socket
import sys
import tempfile
import threading
from pathlib import Path

from tests.golden.grpc_conversations import ARCHIVE, COUNT, TOPIC, read_rows
from tests.interop import wire
from tests.interop.drivers import driving
from tests.interop.five import SDKS, group_body
from tests.interop.stages import Rmq, settled

GROUP = "golden-group"
OURS, TEE = "127.0.0.1", "127.0.0.2"
"""The broker names the tee in its routes: it has another address and the same port."""


class Tee:
    """Passes connections on to the broker, and keeps their bytes."""

    def __init__(self, port):
        self.rows = []
        self.sdk = ""
        self._port, self._count = port, 0
        self._bound = socket.create_server((TEE, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self._bound.accept()
            server = socket.create_connection((OURS, self._port))
            self._count += 1
            for way, source, target in (
                ("c2s", client, server),
                ("s2c", server, client),
            ):
                arguments = (self._count, way, source, target)
                threading.Thread(target=self._pass, args=arguments, daemon=True).start()

    def _pass(self, number, way, source, target):
        try:
            while chunk := source.recv(65_536):
                raw = base64.b64encode(chunk).decode()
                row = {"sdk": self.sdk, "conn": number, "dir": way, "raw": raw}
                self.rows.append(row)
                target.sendall(chunk)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def record(sdk, tee, endpoints, folder):
    tee.sdk = sdk.name
    with driving(sdk, folder / "send", "send", endpoints, TOPIC, COUNT) as producer:
        assert producer.finish()["count"] == COUNT
    with driving(
        sdk, folder / "simple", "simple", endpoints, TOPIC, COUNT, f"group={GROUP}"
    ) as consumer:
        settled(consumer)
        consumer.wait(lambda: bool(consumer.of("done")), "all acked")
        consumer.finish()


def main():
    kept = {row["sdk"]: None for row in read_rows()}
    rows = {name: [row for row in read_rows() if row["sdk"] == name] for name in kept}
    for kind in SDKS:
        if sys.argv[1:] and not kind.name.startswith(tuple(sys.argv[1:])):
            continue
        if missing := kind.missing():
            print(f"{kind.name}: {missing}", file=sys.stderr)  # noqa: T201
            continue
        sdk = kind()
        sdk.prepare()
        with tempfile.TemporaryDirectory(prefix="rmq-record-") as name:
            settings = {"bindAddress": OURS, "brokerIP1": TEE}
            broker = Rmq(Path(name) / "store", settings)
            broker.start()
            port = int(broker.address.rpartition(":")[2])
            tee = Tee(port)
            wire.make_topic(broker.address, TOPIC, 1, "+message.type=NORMAL")
            wire.call(broker.address, 200, body=group_body(GROUP))
            record(sdk, tee, f"{TEE}:{port}", Path(name))
            broker.stop()
        rows[sdk.name] = tee.rows
        print(sdk.name, len(tee.rows))  # noqa: T201
    text = "".join(json.dumps(row) + "\n" for each in rows.values() for row in each)
    ARCHIVE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
