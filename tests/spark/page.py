"""Runs the programs of docs/data/spark.md as they stand: `page.py PAGE NAMES`.

NAMES is JSON of the names that a reader would fill in, such as `store`; `lake` takes
the place of the folder of this name.  It needs nothing but rmq and its extras.
"""

import json
import re
import sys
import time
from pathlib import Path

BLOCK = re.compile(r"^```([a-z]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
STARTS = ("import ", "query = ", "from ")
"""So the programs begin that are not marked as Python: they do not end by themselves,
or need what is not on every machine."""
SESSION = "SparkSession"
ENDLESS = "processingTime"
LIMIT_S = 300


def programs(page: str) -> list[str]:
    """The programs, and first the one that makes the session."""
    found = [
        text
        for language, text in BLOCK.findall(page)
        if language == "python" or (not language and text.startswith(STARTS))
    ]
    return sorted(found, key=lambda text: SESSION not in text)


def main() -> None:
    """Run them all in one interpreter, as a reader does who types them."""
    page, given = Path(sys.argv[1]), json.loads(sys.argv[2])
    lake, wanted = given.pop("lake"), given.pop("endless rows")
    names = dict(given)
    found = programs(page.read_text())
    for program in found:
        here = program.replace("/lake", lake) if ENDLESS in program else program
        exec(compile(here, str(page), "exec"), names)
        if ENDLESS in program:
            end_s = time.monotonic() + LIMIT_S
            query = names["query"]
            while sum(each["numInputRows"] for each in query.recentProgress) < wanted:
                assert query.exception() is None, query.exception()
                assert time.monotonic() < end_s, query.recentProgress
                time.sleep(0.2)
            query.stop()
    names["spark"].stop()
    sys.stdout.write(f"\nran {len(found)} programs\n")


if __name__ == "__main__":
    main()
