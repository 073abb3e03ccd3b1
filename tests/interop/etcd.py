"""Members of etcd on loopback, killed and stopped one by one."""

import shutil
import signal
import subprocess
import urllib.request

from .drivers import eventually
from .processes import free_port


class Etcd:
    """A cluster in a folder."""

    def __init__(self, folder, members=3, quota=0):
        """`quota` in bytes; 0 for etcd's own."""
        self._folder, self._quota = folder, quota
        self._ports = {f"m{i}": (free_port(), free_port()) for i in range(members)}
        self._processes = {}

    @staticmethod
    def is_missing():
        return shutil.which("etcd") is None

    @property
    def endpoints(self):
        return [f"http://127.0.0.1:{client}" for client, _ in self._ports.values()]

    def __enter__(self):
        for name in self._ports:
            self.start(name)
        for endpoint in self.endpoints:
            eventually(lambda url=endpoint: is_healthy(url), f"{endpoint} serves")
        return self

    def __exit__(self, *_):
        self._halt()

    def start(self, name):
        client, peer = self._ports[name]
        cluster = ",".join(
            f"{each}=http://127.0.0.1:{port}" for each, (_, port) in self._ports.items()
        )
        home = self._folder / name
        arguments = {
            "name": name, "data-dir": home, "initial-cluster": cluster,
            "listen-client-urls": f"http://127.0.0.1:{client}",
            "advertise-client-urls": f"http://127.0.0.1:{client}",
            "listen-peer-urls": f"http://127.0.0.1:{peer}",
            "initial-advertise-peer-urls": f"http://127.0.0.1:{peer}",
            "log-level": "error", "quota-backend-bytes": self._quota,
        }  # fmt: skip
        texts = [f"--{key}={value}" for key, value in arguments.items()]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                ["etcd", *texts], stdout=log, stderr=log
            )

    def kill(self, name):
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def pause(self, name):
        """It answers nobody, and its connections stay open."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name):
        self._processes[name].send_signal(signal.SIGCONT)

    def save(self, copy):
        """Copy the files of all members, as one moment has them."""
        self._halt()
        shutil.copytree(self._folder, copy)
        self.__enter__()

    def restore(self, copy):
        self._halt()
        for name in self._ports:
            shutil.rmtree(self._folder / name)
            shutil.copytree(copy / name, self._folder / name)
        self.__enter__()

    def _halt(self):
        for name in list(self._processes):
            self.kill(name)

    def leader(self):
        """The name of the member that leads; the others forward to it."""
        for name, (client, _) in self._ports.items():
            if name in self._processes and leads(f"http://127.0.0.1:{client}"):
                return name
        return None


def is_healthy(endpoint):
    try:
        with urllib.request.urlopen(f"{endpoint}/health", timeout=2) as answer:
            return b'"true"' in answer.read()
    except OSError:
        return False


def leads(endpoint):
    try:
        with urllib.request.urlopen(f"{endpoint}/metrics", timeout=2) as answer:
            return b"\netcd_server_is_leader 1" in answer.read()
    except OSError:
        return False
