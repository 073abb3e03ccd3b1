"""The load generator's Redis mode, against a Redis in Python and against a real one."""

import json
import shutil
import socketserver
import subprocess
import threading

import pytest

from bench.load import run
from lab.compare_java import empty_redis, redis_server

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")


class Redis(socketserver.ThreadingTCPServer):
    """Answers each command with an id, or always with `answer`, in pieces."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, answer=None, piece=1 << 16):
        super().__init__(("127.0.0.1", 0), Commands)
        self.answer, self.piece = answer, piece
        self.commands = []


class Commands(socketserver.StreamRequestHandler):
    def handle(self):
        while (line := self.rfile.readline()).startswith(b"*"):
            words = [self.word() for _ in range(int(line[1:]))]
            self.server.commands.append(words)
            number = len(self.server.commands)
            entry = b"1795230112758-%d" % number
            answer = self.server.answer or b"$%d\r\n%s\r\n" % (len(entry), entry)
            for at in range(0, len(answer), self.server.piece):
                self.wfile.write(answer[at : at + self.server.piece])

    def word(self):
        size = int(self.rfile.readline().removeprefix(b"$"))
        return self.rfile.read(size + 2).removesuffix(b"\r\n")


@pytest.fixture(scope="module", autouse=True)
def built():
    run.build()


def generate(server, *options):
    command = [
        run.BINARIES / "generator", f"--port={server.server_address[1]}", "--redis",
        "--connections=2", "--window=8", "--warm-up=0", "--messages=40",
        "--seconds=10", *options,
    ]  # fmt: skip
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    with server:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        server.shutdown()
    return done


@pytest.mark.parametrize("piece", [1 << 16, 7], ids=["whole", "pieces"])
def test_each_message_is_an_entry_of_a_stream(piece):
    server = Redis(piece=piece)
    done = generate(server, "--topic=News", "--body=9")
    assert done.returncode == 0, done.stderr
    assert server.commands == [[b"XADD", b"News", b"*", b"m", b"b" * 9]] * 40
    figures = json.loads(done.stdout)
    assert figures["messages"] == figures["answered"] == 40
    assert figures["p50_us"] > 0


def test_several_streams():
    server = Redis()
    done = generate(server, "--topics=4", "--topic=News")
    assert done.returncode == 0, done.stderr
    streams = [command[1] for command in server.commands]
    assert {name: streams.count(name) for name in set(streams)} == {
        b"News%d" % number: 10 for number in range(4)
    }


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"-OOM command not allowed\r\n", "-OOM command not allowed"),
        (b"$-1\r\n", "no id in the reply"),
        (b"+OK\r\n", "no id in the reply"),
        (b"$9999\r\n", "no id in the reply"),
        (b"$5\r\n12345\r\n", "not the id of an entry"),
        (b"$3\r\n1-2345\r\n", "not the id of an entry"),
        (b"$3\r\n1-2\r\n" * 3, "without a request"),
        (b"$" + b"1" * 600, "without an end of its line"),
    ],
)
def test_another_answer_ends_the_run(answer, said):
    done = generate(Redis(answer), "--connections=1", "--window=1", "--messages=1")
    assert done.returncode == 1
    assert said in done.stderr


def test_what_redis_has_not_is_refused():
    done = generate(Redis(), "--binary")
    assert done.returncode == 2
    assert "outside its limits" in done.stderr


@pytest.mark.skipif(
    not shutil.which("redis-server"), reason="no redis-server on this machine"
)
@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_real_redis(tmp_path, mode):
    options = ["--redis", "--window=8", "--messages=200", "--warm-up=0"]
    with redis_server(tmp_path, mode) as server:
        figures = run.play(server, options, 10, None)
        assert figures["messages"] == 200
        empty_redis(server)
    # with everysec Redis may answer before it writes: all is there when it has ended
    logs = [path.read_bytes() for path in tmp_path.rglob("*.aof")]
    assert b"".join(logs).count(b"XADD") == 200
