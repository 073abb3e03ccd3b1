"""Gateway: what of etcd's JSON gateway a controller uses, in memory."""

import base64
import json

import httpx
import trio


class Gateway(httpx.AsyncBaseTransport):
    """The members of one cluster; `mood` says how an endpoint behaves."""

    def __init__(self):
        self.revision = 1
        self.kvs = {}
        self.leases = {}
        self.history = []
        self.changed = trio.Event()
        self.mood = {}
        """By host: `away`, `slow`, `full`, or `lost`: it acts and does not answer."""
        self.asked = []
        self.tokens = set()
        self.needs_user = False

    async def handle_async_request(self, request):
        host, path = request.url.host, request.url.path.removeprefix("/v3/")
        self.asked.append((host, path))
        body = json.loads(request.content)
        mood = self.mood.get(host, "")
        if mood == "away":
            raise httpx.ConnectError("refused")
        if mood == "slow":
            await trio.sleep(60)
        is_known = request.headers.get("Authorization") in self.tokens
        if self.needs_user and not is_known and path != "auth/authenticate":
            return self.error("etcdserver: user name is empty")
        if mood == "full" and ("put" in path or "txn" in path):
            return self.error("etcdserver: mvcc: database space exceeded")
        if path == "watch":
            return httpx.Response(
                200, content=self.events(host, body["create_request"])
            )
        answer = getattr(self, path.replace("/", "_"))(body)
        if mood == "lost":
            raise httpx.ReadTimeout("")
        if isinstance(answer, httpx.Response):
            return answer
        answer.setdefault("header", {"revision": str(self.revision)})
        return httpx.Response(200, content=json.dumps(answer))

    @staticmethod
    def error(text):
        return httpx.Response(400, content=json.dumps({"error": text, "code": 3}))

    # -- keys

    def kv_range(self, body):
        end = body.get("range_end")
        found = [
            kv
            for key, kv in sorted(self.kvs.items())
            if key == decoded(body["key"])
            or (end and decoded(body["key"]) <= key < decoded(end))
        ]
        return {"kvs": found, "count": str(len(found))} if found else {}

    def kv_put(self, body):
        self.revision += 1
        key = decoded(body["key"])
        known = self.kvs.get(key)
        created = known["create_revision"] if known else str(self.revision)
        kv = {
            "key": body["key"], "value": body["value"], "create_revision": created,
            "mod_revision": str(self.revision),
        }  # fmt: skip
        if "lease" in body:
            kv["lease"] = body["lease"]
        self.kvs[key] = {name: text for name, text in kv.items() if text}
        self._note({"kv": self.kvs[key]})
        return {}

    def kv_delete_range(self, body):
        self._remove(decoded(body["key"]))
        return {}

    def kv_txn(self, body):
        succeeded = all(map(self._holds, body["compare"]))
        responses = []
        for operation in body.get("success" if succeeded else "failure", ()):
            ((name, argument),) = operation.items()
            what = name.removeprefix("request_")
            answer = getattr(self, f"kv_{what}")(argument)
            responses.append({f"response_{what}": answer})
        return {"responses": responses} | ({"succeeded": True} if succeeded else {})

    def _holds(self, compare):
        kv = self.kvs.get(decoded(compare["key"]), {})
        field = f"{compare['target'].lower()}_revision"
        return kv.get(field, "0") == compare[field]

    def _remove(self, key):
        self.revision += 1
        if kv := self.kvs.pop(key, None):
            removed = {"key": kv["key"], "mod_revision": str(self.revision)}
            self._note({"type": "DELETE", "kv": removed})

    def _note(self, event):
        self.history.append((self.revision, event))
        self.changed.set()
        self.changed = trio.Event()

    # -- leases

    def lease_grant(self, body):
        name = str(len(self.leases) + 7)
        self.leases[name] = True
        return {"ID": name, "TTL": body["TTL"]}

    def lease_keepalive(self, body):
        ttl = {"TTL": "5"} if self.leases.get(body["ID"]) else {}
        return {"result": {"ID": body["ID"], **ttl}}

    def lease_revoke(self, body):
        self.expire(body["ID"])
        return {}

    def expire(self, lease):
        """End a lease, as etcd does when nobody keeps it alive."""
        self.leases[lease] = False
        for key in [k for k, kv in self.kvs.items() if kv.get("lease") == lease]:
            self._remove(key)

    # -- the rest

    def auth_authenticate(self, body):
        if (body["name"], body["password"]) != ("root", "secret"):
            return self.error("etcdserver: authentication failed")
        self.tokens.add("token")
        return {"token": "token"}

    async def events(self, host, request):
        seen = int(request["start_revision"]) - 1
        yield b'{"result":{"created":true}}\n'
        while True:
            changed = self.changed
            new = [(r, event) for r, event in self.history if r > seen]
            if self.mood.get(host) == "slow":
                new = []
            if new:
                seen = new[-1][0]
                events = [event for _, event in new]
                yield json.dumps({"result": {"events": events}}).encode() + b"\n"
            else:
                await changed.wait()


def decoded(text):
    return base64.b64decode(text).decode()


def encoded(text):
    return base64.b64encode(text.encode()).decode()
