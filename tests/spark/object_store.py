"""An object store for tests: moto's S3, and a proxy before it that makes faults."""

import contextlib
import http.client
import os
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow.parquet as pq

from rmq_spark.export.folder import MANIFESTS
from rmq_spark.export.manifest import table_files
from rmq_spark.export.open_folder import open_folder

BUCKET = "lake"
FAIL = b"<Error><Code>InternalError</Code><Message>please try again</Message></Error>"
WAIT_S = 60
SLOW_S = 0.3


MOTO = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def moto():
    """A server in a process of its own, with an empty bucket; its port."""
    with subprocess.Popen(
        [sys.executable, "-c", MOTO],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        try:
            port = int(server.stdout.readline())
            request(port, "PUT", f"/{BUCKET}")
            yield port
        finally:
            with contextlib.suppress(BrokenPipeError):
                server.stdin.close()
            server.kill()


def request(port, method, path, body=b"", headers=()):
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


class Proxy(ThreadingHTTPServer):
    """Hands requests on, as `fault` says for each: None or one of

    a number: this status instead of an answer, and nothing is handed on;
    "lost": handed on, and then 500; "cut": nothing is handed on, and no answer;
    "cut after": handed on, and no answer; "unconditional": without If-None-Match;
    "slow": handed on after a while.
    """

    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = port
        self.fault = lambda method, path: None
        self.seen = []
        self.slowness = threading.Event()
        """Never set: waiting for it takes its time."""
        self._lock = threading.Lock()

    def fault_of(self, method, path):
        with self._lock:
            self.seen.append((method, path))
            return self.fault(method, path)

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def _serve(self):
        body = self._body()
        fault = self.server.fault_of(self.command, self.path)
        if fault == "cut":
            self.close_connection = True
            return
        if isinstance(fault, int):
            self._answer(fault, [], FAIL)
            return
        if fault == "slow":
            self.server.slowness.wait(SLOW_S)
        skipped = {"connection", "transfer-encoding"}
        if fault == "unconditional":
            skipped.add("if-none-match")
        headers = [(k, v) for k, v in self.headers.items() if k.lower() not in skipped]
        answer = request(self.server.behind, self.command, self.path, body, headers)
        if fault == "cut after":
            self.close_connection = True
        elif fault == "lost":
            self._answer(500, [], FAIL)
        else:
            self._answer(*answer)

    def _body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(parts)

    def _answer(self, status, headers, body):
        self.send_response(status)
        own = {"connection", "transfer-encoding", "date", "server"}
        if self.command != "HEAD":
            own.add("content-length")
        for name, value in headers:
            if name.lower() not in own:
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        elif status >= 400:
            self.send_header("Content-Length", "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

    def log_message(self, *_):
        pass


def check_objects(url, count, table_format="parquet"):
    """Store, manifests and table have the same files, and in them each key once."""
    folder = open_folder(url)
    files = table_files(folder)
    assert [found.path for found in folder.data_files()] == sorted(files)
    counts = Counter()
    for path in files:
        with pq.ParquetFile(folder.open(path)) as file:
            counts.update(file.read(["keys"])["keys"].to_pylist())
    expected = Counter(f"k{i}" for i in range(count))
    assert counts == expected
    assert sum(file.rows for file in files.values()) == count
    if table_format != "parquet":
        assert table_keys(table_format, url) == expected


def table_keys(table_format, url, part=""):
    """How often each key is in the table, or a part of it, read by its own library."""
    if table_format == "delta":
        import deltalake

        rows = deltalake.DeltaTable(f"{url}/{part}").to_pyarrow_table(columns=["keys"])
    else:
        from pyiceberg.catalog import load_catalog

        if url.startswith("s3://"):
            # not from pyiceberg's own table of variables: it reads them once
            given = {
                "uri": os.environ["PYICEBERG_CATALOG__RMQ__URI"],
                "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
            }
        else:
            given = {"uri": f"sqlite:///{url}/{MANIFESTS}/iceberg.db"}
        table = load_catalog("rmq", **given).load_table(
            f"rmq.messages{part}".rstrip("/")
        )
        rows = table.scan(selected_fields=("keys",)).to_arrow()
    return Counter(rows["keys"].to_pylist())
