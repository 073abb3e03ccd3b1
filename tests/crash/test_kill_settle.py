"""kill -9 of `rmq store settle`: what the killed broker had in its ring is there."""

import shutil
import subprocess
import sys
import time

import pytest

from tests.crash.laboratory import Load, broker, check, dice, rounds

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]
SIZES = "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\n"


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_killed_settle_loses_nothing(tmp_path, flush):
    chance, load, killed = dice(), Load(), 0
    killed_root = tmp_path / "store"
    with broker(killed_root, flush, ring=1 << 20) as (child, address):
        load.run(address, 0.3, child.kill)
        child.wait(20)
    configuration = tmp_path / "broker.conf"
    configuration.write_text(SIZES)
    command = [sys.executable, "-m", "rmq", "store", "settle", "-c", configuration]
    for number in range(rounds(10)):
        root = tmp_path / str(number)
        shutil.copytree(killed_root, root)
        with subprocess.Popen([*command, root], stdout=subprocess.DEVNULL) as settle:
            time.sleep(chance.uniform(0.2, 0.6))
            settle.kill()
        killed += settle.returncode != 0
        check(root, load, tmp_path / f"copy {number}")
        subprocess.run([*command, root], check=True, capture_output=True, timeout=60)
        assert not (root / "ring").exists()
        assert not (root / "abort").exists()
        check(root, load, tmp_path / f"settled {number}")
        shutil.rmtree(tmp_path / f"copy {number}")
        shutil.rmtree(tmp_path / f"settled {number}")
        shutil.rmtree(root)
    print(f"{flush}: {killed} of {rounds(10)} killed before their end")  # noqa: T201
