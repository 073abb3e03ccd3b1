"""Each compiled module is loaded alone."""

import subprocess
import sys


def test_a_name_loads_no_module_of_the_server():
    program = (
        "import sys; from rmq._fastpath.log.decode import decode_record;"
        "print([n for n in sys.modules if 'reactor' in n or 'send_path' in n])"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
