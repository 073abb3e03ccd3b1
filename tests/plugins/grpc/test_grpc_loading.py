"""A broker loads the code of gRPC with its first client of gRPC, not at its start."""

import subprocess
import sys


def test_the_plugin_loads_no_code_of_http2():
    """It once loaded the modules of HTTP/2 at each start, which took 4 to 8 ms."""
    code = (
        "import sys, rmq.broker.assemble, rmq_plugins.grpc; "
        "print([n for n in sys.modules if 'http2' in n or 'protobuf' in n "
        "or 'rmq_plugins.grpc' in n])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert found == "['rmq.remoting.http2', 'rmq_plugins.grpc']", found
