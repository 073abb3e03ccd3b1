"""What `import rmq.client` loads."""

import subprocess
import sys

PROGRAM = """
import sys
from rmq.client import Client, Consumer, Message, Producer
servers = ("broker", "namesrv", "node", "plugins", "remoting", "replication", "store")
print([n for n in sys.modules if n.startswith(tuple(f"rmq.{s}" for s in servers))])
others = "trio", "pluggy", "rmq._fastpath.reactor.reactor"
print([n for n in sys.modules if n in others])
"""


def test_the_client_loads_nothing_of_a_server():
    out = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert out.stdout.split() == ["[]", "[]"]


def test_names_that_do_not_exist():
    import rmq.client

    assert "Producer" in dir(rmq.client)
    assert not hasattr(rmq.client, "Nothing")
