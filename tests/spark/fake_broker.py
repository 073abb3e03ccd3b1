"""A broker and name server for tests: answers by a script, and can break off."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Self

from rmq.protocol.codes import RequestCode, SerializeType
from rmq.protocol.command import Command
from rmq.protocol.frames import decode, encode

MAX_FRAME = 1 << 24

CUT = object()
"""A script's answer: the connection ends."""

SILENCE = object()
"""A script's answer: none ever comes."""


class FakeBroker:
    """Serves in threads while it is entered; `requests` are those that it got.

    `script` answers a request with (code, fields, body), CUT or SILENCE. It is called
    by one thread at a time; for routes, too, unless `knows_routes`.
    """

    def __init__(self, script: Callable[[Command], object], queues: int = 2) -> None:
        self._script = script
        self.queues = queues
        self.knows_routes = True
        self.requests: list[Command] = []
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._server, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._sockets.append(connection)
            threading.Thread(
                target=self._serve, args=(connection,), daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        data = b""
        try:
            while more := connection.recv(1 << 18):
                data += more
                if int.from_bytes(data[:4]) > MAX_FRAME:
                    connection.close()  # a TLS handshake
                    return
                while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4]):
                    size = 4 + int.from_bytes(data[:4])
                    frame, data = data[:size], data[size:]
                    self._answer(connection, decode(frame))
        except OSError:
            return

    def _answer(self, connection: socket.socket, request: Command) -> None:
        with self._lock:
            is_route = request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
            if is_route and self.knows_routes:
                answer = (0, {}, self._route())
            else:
                self.requests.append(request)
                answer = self._script(request)
        if answer is CUT:
            connection.shutdown(socket.SHUT_RDWR)
        elif answer is not SILENCE and not request.is_oneway:
            code, fields, body = answer
            command = Command(
                code, {k: str(v) for k, v in fields.items()}, body,
                opaque=request.opaque, flag=1,
                remark=None if code == 0 else f"scripted {code}",
            )  # fmt: skip
            command.serialize_type = SerializeType.JSON
            connection.sendall(encode(command))

    def _route(self) -> bytes:
        broker = {
            "cluster": "C",
            "brokerName": "broker-a",
            "brokerAddrs": {"0": self.address},
        }
        queue = {
            "brokerName": "broker-a",
            "readQueueNums": self.queues,
            "writeQueueNums": self.queues,
            "perm": 6,
            "topicSysFlag": 0,
        }
        data = {"brokerDatas": [broker], "queueDatas": [queue], "filterServerTable": {}}
        return json.dumps(data).encode()
