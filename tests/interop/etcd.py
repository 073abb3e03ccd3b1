"""Members of etcd on loopback, killed and stopped one by one."""

import shutil
import signal
import subprocess
import urllib.request

from tests.waiting import wait_until

from .machines import HERE
from .processes import free_port


class Etcd:
    """A cluster in a folder."""

    def __init__(self, folder, machines=(HERE, HERE, HERE), quota=0):
        """Each member is on a machine; `quota` in bytes, 0 for etcd's own."""
        self._folder, self._quota = folder, quota
        self.machines = {f"m{i}": each for i, each in enumerate(machines)}
        self._ports = {name: (free_port(), free_port()) for name in self.machines}
        self._processes = {}

    @staticmethod
    def is_missing():
        return shutil.which("etcd") is None

    @property
    def endpoints(self):
        return [self._urls(name)[0] for name in self._ports]

    def _urls(self, name):
        """The addresses of a member for clients and for the others."""
        host = self.machines[name].host
        return [f"http://{host}:{port}" for port in self._ports[name]]

    def _listen_urls(self, name):
        bound = self.machines[name].bound
        return [f"http://{bound}:{port}" for port in self._ports[name]]

    def __enter__(self):
        for name in self._ports:
            self.start(name)
        for endpoint in self.endpoints:
            wait_until(lambda url=endpoint: is_healthy(url), f"{endpoint} serves")
        return self

    def __exit__(self, *_):
        self._halt()

    def start(self, name):
        client, peer = self._urls(name)
        listen_client, listen_peer = self._listen_urls(name)
        cluster = ",".join(f"{each}={self._urls(each)[1]}" for each in self._ports)
        home = self._folder / name
        arguments = {
            "name": name, "data-dir": home, "initial-cluster": cluster,
            "listen-client-urls": listen_client,
            "advertise-client-urls": client,
            "listen-peer-urls": listen_peer,
            "initial-advertise-peer-urls": peer,
            "log-level": "error", "quota-backend-bytes": self._quota,
        }  # fmt: skip
        texts = [f"--{key}={value}" for key, value in arguments.items()]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*self.machines[name].inside, "etcd", *texts], stdout=log, stderr=log
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

    def is_whole(self):
        """Whether all members serve."""
        return all(map(is_healthy, self.endpoints))

    def leader(self):
        """The name of the member that leads; the others forward to it."""
        for name in self._ports:
            if name in self._processes and leads(self._urls(name)[0]):
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
