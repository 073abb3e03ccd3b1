"""`make lab NAME=growth ARGS="--parts queues"`: run one laboratory; without a name,
list all.

A laboratory takes minutes or hours, needs a quiet machine, or needs other programs.
"""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PYTEST: Final = (sys.executable, "-m", "pytest")


class Lab(NamedTuple):
    """One laboratory: what it shows, and its command without arguments."""

    sentence: str
    command: tuple[str, ...]


def script(path: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a script of this checkout."""
    return sys.executable, str(ROOT / path), *arguments


LABS: Final = {
    "abuse": Lab("what an honest client notices of 26 attacks", script("lab/abuse.py")),
    "busy-disk": Lab(
        "p99 of sends while another program reads or writes 500 MB/s; 7 minutes",
        script("lab/busy_disk.py"),
    ),
    "chaos": Lab(
        "a Java group reads in order while brokers and members come and go",
        script("tests/interop/order_chaos.py"),
    ),
    "client": Lab(
        "the Python client: sends, consumers, threads under each loop; 2 minutes",
        script("lab/client.py"),
    ),
    "compare-java": Lab(
        "rmq, Java RocketMQ 5.5.0, Redis and a C echo side by side; 9 minutes",
        script("lab/compare_java.py"),
    ),
    "comparison": Lab(
        "rates beside Java, NATS, Redis and RabbitMQ, where they are here; 4 minutes",
        script("lab/comparison.py"),
    ),
    "console": Lab(
        "the console: memory, CPU, pauses, first paint; 4 minutes",
        script("lab/console.py"),
    ),
    "console-pictures": Lab(
        "the pictures of docs/operate/console.md", script("tests/console/pictures.py")
    ),
    "console-test": Lab(
        "the console in Debian's Chromium: states, looks, axe-core, keys; 4 minutes",
        (*PYTEST, "-q", "-rs", "-m", "browser", "tests/console"),
    ),
    "controller": Lab(
        "cost of a controller for an idle group, and time without a master; 5 minutes",
        script("lab/controller.py"),
    ),
    "damage": Lab(
        "damaged logs, queues, tables and states of real processes; 45 minutes",
        script("lab/damage.py"),
    ),
    "distribution": Lab(
        "a fresh clone with `make run`, wheels in clean environments",
        (*PYTEST, "-q", "-s", "-m", "slow or distribution", "tests/distribution"),
    ),
    "examples": Lab(
        "the programs of examples/ in six languages",
        (*PYTEST, "-q", "-s", "-m", "examples", "tests/examples"),
    ),
    "fuzz": Lab(
        "a million bad frames, half of them with access control on",
        script("tests/security/fuzz.py", "--frames", "1000000"),
    ),
    "grpc": Lab(
        "gRPC: CPU of calls, 10,000 idle clients, a good client beside attacks; "
        "6 minutes",
        script("lab/grpc.py"),
    ),
    "growth": Lab(
        "many topics, members, pulls, connections, with the worst pause; 10 minutes",
        script("lab/growth.py"),
    ),
    "incidents": Lab(
        "ten incidents named in 15 s by console, top and doctor; 10 minutes",
        (*PYTEST, "-q", "-s", "-m", "interop", "tests/console/test_incidents.py"),
    ),
    "java-clients": Lab(
        "Java's own benchmark clients against rmq and Java RocketMQ; 10 minutes",
        script("lab/java_clients.py"),
    ),
    "java-tls": Lab(
        "Java's client by TLS and without: rate, CPU of broker and client; a minute",
        script("lab/java_tls.py"),
    ),
    "listeners": Lab(
        "consumers of Java, Go and C++ at 1,000 messages a second; 23 minutes",
        script("lab/listeners.py"),
    ),
    "ordinary": Lab(
        "few messages a second and consumers that wait, beside Java; 8 minutes",
        script("lab/ordinary.py"),
    ),
    "pauses": Lab(
        "how long others wait for large events: lists, timers, ends; 4 minutes",
        script("lab/pauses.py"),
    ),
    "pop": Lab(
        "POP with single acks, redelivery, waiting POPs, beside Java; 2 minutes",
        script("lab/pop.py", "--java"),
    ),
    "profile": Lab(
        "CPU by part, and flame graphs in bench/results/ (needs perf)",
        script("bench/load/profiles.py"),
    ),
    "recording": Lab(
        "plays the first minute and writes it into docs/start/quickstart.md",
        script("packaging/recording.py"),
    ),
    "requests": Lab(
        "the cost of each request of ordinary clients in plain sends; 10 minutes",
        script("lab/requests.py", "--java"),
    ),
    "replication": Lab(
        "a master with a slave beside the echo and a pair of Java; 5 minutes",
        script("lab/replication.py", "--java"),
    ),
    "simulate": Lab(
        "groups with a controller under kills, power cuts and cut networks, by seed",
        (sys.executable, "-m", "tests.simulation"),
    ),
    "spark": Lab(
        "rows per second and CPU per million rows in Spark", script("lab/spark/run.py")
    ),
    "spark-topics": Lab(
        "live topics in Spark", script("lab/spark/topics.py", "--spark")
    ),
    "sql": Lab("rmq sql over five million messages", script("lab/sql.py")),
    "steady": Lab(
        "5,000 messages a second while consumers come and go; 30 minutes",
        script("lab/steady.py"),
    ),
    "tasks": Lab(
        "Celery: tasks, workers, calls, beside Redis and RabbitMQ if they are here; "
        "5 minutes",
        script("lab/tasks.py"),
    ),
    "timers": Lab(
        "timed messages: lateness, rates, a crowded second, beside Java; 8 minutes",
        script("lab/timers.py", "--java"),
    ),
}
"""By name, in the order of the list."""


def main(name: str = "", *arguments: str) -> int:
    """Run a laboratory with the arguments; its exit code. Without a name list all."""
    if name not in LABS:
        for each, lab in LABS.items():
            print(f"  make lab NAME={each:<17} {lab.sentence}")
        if name:
            print(f"there is no laboratory {name}", file=sys.stderr)
        return bool(name)
    command = *LABS[name].command, *arguments
    print("$", shlex.join(command), file=sys.stderr)
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
