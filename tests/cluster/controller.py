"""A controller of one group, in a thread: it does what a test tells it.

It keeps the set as Java's do, by epoch and number, and elects whom the test wants.
"""

import json
import socket
import threading
import time

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.frames import FrameDecoder, encode


class Controller:
    """Serves from `with` on; `is_silent` lets no request through."""

    def __init__(self):
        self.is_silent = False
        self.lost_codes = ()
        """Requests that are carried out, and not answered."""
        self.ids = {}
        """Address by id."""
        self.beats = {}
        """The last heartbeat by id."""
        self.master = None
        self.epoch = 0
        self.members, self.number = [], 0
        self.asked = []
        """The sets that masters asked for."""
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._streams = []

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listening.close()
        for stream in self._streams:
            stream.close()

    def elect(self, broker_id, *, members=None):
        """Make a broker the master of a new epoch."""
        with self._lock:
            self._elect(broker_id, members or [broker_id])

    def _elect(self, broker_id, members):
        self.master, self.epoch = broker_id, self.epoch + 1
        self.members, self.number = members, self.number + 1

    def _accept(self):
        while True:
            try:
                stream, _ = self._listening.accept()
            except OSError:
                return
            self._streams.append(stream)
            threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream):
        decoder = FrameDecoder()
        try:
            while data := stream.recv(1 << 16):
                for request in decoder.feed(data):
                    while self.is_silent:
                        time.sleep(0.01)
                    with self._lock:
                        answer = self._answer(request)
                    if request.code not in self.lost_codes:
                        stream.sendall(encode(answer))
        except OSError:
            pass

    def _answer(self, request):
        fields, code = request.ext_fields, request.code
        refuse = request.reply
        if code == RequestCode.CONTROLLER_GET_METADATA_INFO:
            return request.reply(
                ext_fields={"controllerLeaderAddress": self.address, "isLeader": "true"}
            )
        if code == RequestCode.CONTROLLER_GET_NEXT_BROKER_ID:
            return request.reply(ext_fields={"nextBrokerId": str(len(self.ids) + 1)})
        if code == RequestCode.CONTROLLER_APPLY_BROKER_ID:
            known = self.ids.setdefault(
                int(fields["appliedBrokerId"]), fields["registerCheckCode"]
            )
            if known != fields["registerCheckCode"]:
                return refuse(ResponseCode.CONTROLLER_BROKER_ID_INVALID, "taken")
            return request.reply()
        if code == RequestCode.BROKER_HEARTBEAT:
            self.beats[int(fields["brokerId"])] = fields
            return request.reply()
        if code == RequestCode.CONTROLLER_REGISTER_BROKER:
            self.ids[int(fields["brokerId"])] = fields["brokerAddress"]
            return self._role(request)
        if code == RequestCode.CONTROLLER_GET_REPLICA_INFO:
            return self._role(request)
        if code == RequestCode.CONTROLLER_ELECT_MASTER:
            if self.epoch and self.master is None:
                return refuse(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "nobody")
            if not self.epoch:
                broker_id = int(fields["brokerId"])
                self._elect(broker_id, [broker_id])
            return self._role(request)
        assert code == RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, code
        return self._alter(request)

    def _role(self, request):
        body = json.dumps(
            {"syncStateSet": self.members, "syncStateSetEpoch": self.number}
        ).encode()
        fields = {"masterEpoch": str(self.epoch)}
        if self.master is not None:
            fields["masterBrokerId"] = str(self.master)
            fields["masterAddress"] = self.ids[self.master]
            fields["syncStateSetEpoch"] = str(self.number)
        return request.reply(ext_fields=fields, body=body)

    def _alter(self, request):
        fields, wanted = request.ext_fields, json.loads(request.body)
        self.asked.append(wanted["syncStateSet"])
        if int(fields["masterEpoch"]) != self.epoch:
            return request.reply(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, "old")
        if wanted["syncStateSetEpoch"] != self.number:
            code = ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
            return request.reply(code, "old")
        self.members, self.number = wanted["syncStateSet"], self.number + 1
        answer = self._role(request)
        answer.ext_fields["newSyncStateSetEpoch"] = str(self.number)
        return answer
