"""An address server: a page with the addresses of name servers."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class AddressServer:
    """An address server on a port of its own; `page` and `status` are its answer."""

    def __init__(self) -> None:
        self.page, self.status, self.paths = b"", 200, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.paths.append(self.path)
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.page)))
                self.end_headers()
                self.wfile.write(outer.page)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}/rocketmq/nsaddr"
        threading.Thread(target=self._server.serve_forever, args=(0.01,)).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()
