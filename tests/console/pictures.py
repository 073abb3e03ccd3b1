"""The pictures of docs/operate/console.md: a broker with a fixed seed, seen in
Chromium.

    python tests/console/pictures.py      writes docs/console-*.png

Needs Debian's chromium and chromium-driver, and selenium (`make lab NAME=console-test`
installs it).  `make lab NAME=console-pictures` calls it.
"""

import os
import random
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "plugins")]
os.environ["TZ"] = "UTC"

from tests.console.browser import browser, missing  # noqa: E402 - found by that line
from tests.console.world import TOPICS, console, put  # noqa: E402 - found by that line

TRAFFIC_S = 25
SIZE = 1_120, 760
PICTURES = (
    ("overview", "#/", "light"), ("group", "#/group?name=search-indexer", "light"),
    ("message", "#/message?topic=order-paid&queue=0&offset=0", "dark"),
)  # fmt: skip


async def traffic(broker, clock):
    """Send the same messages each time, in steps of a fifth of a second."""
    chance = random.Random(11)
    number = 0
    while True:
        for _ in range(chance.randrange(30, 70)):
            name, queues = chance.choice(TOPICS)
            put(broker, name, queue_id=chance.randrange(queues), KEYS=f"p-{number}")
            number += 1
        for queue_id in range(16):
            end = int(broker.store.reads.max_offset("order-paid", queue_id))
            broker.offsets.commit("c", "warehouse", "order-paid", queue_id, end)
        clock.ms += 200
        await trio.sleep(0.2)


def shoot(port):
    """Take the pictures."""
    with browser(port) as page:
        page.open("#/")
        page.settled()
        for name, place, look in PICTURES:
            page.open(place)
            page.look(look)
            width, height = SIZE
            size = {"width": width, "height": height, "deviceScaleFactor": 1,
                    "mobile": False}  # fmt: skip
            page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            page.settled()
            page.run("document.activeElement?.blur()")
            trio.from_thread.run(trio.sleep, 1.5)
            path = ROOT / "docs/images" / f"console-{name}.png"
            path.write_bytes(page.driver.get_screenshot_as_png())
            size_kb = path.stat().st_size // 1_000
            sys.stdout.write(f"{path.relative_to(ROOT)} {size_kb} kB\n")


async def main():
    """Run the broker, its traffic and the browser."""
    with tempfile.TemporaryDirectory() as folder:
        large = {"mappedFileSizeCommitLog": str(64 << 20)}
        async with console(
            Path(folder), large, is_full=True, third="invoice-writer"
        ) as (node, proxy):
            broker = node.broker.context
            async with trio.open_nursery() as nursery:
                nursery.start_soon(traffic, broker, broker.clock)
                await trio.sleep(TRAFFIC_S)
                await trio.to_thread.run_sync(partial(shoot, proxy.port))
                nursery.cancel_scope.cancel()


if __name__ == "__main__":
    if reason := missing():
        sys.exit(reason)
    trio.run(main)
