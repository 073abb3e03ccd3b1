"""A standalone cluster on this machine: two executors in JVMs of their own."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'rmq[spark]' for this test")

from rmq_spark.session import missing
from tests.spark.exports import check_exact
from tests.spark.stores import StoreWriter, orders

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
COUNT = 100_000
START_S = 90
LIMIT_S = 300
JOB = """
import json, os, sys
from pathlib import Path
from rmq_spark.session import start_session


def who(rows):
    # this worker, its daemon, the JVM of the executor
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    jvm = int(stat.rsplit(")", 1)[1].split()[1])
    places = [row.physicalOffset for row in rows]
    yield jvm, len(places), sum(places)


spark = start_session(
    sys.argv[1],
    {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1",
     "spark.driver.bindAddress": "127.0.0.1", "spark.cores.max": "2",
     "spark.scheduler.minRegisteredResourcesRatio": "1.0"},
)
frame = spark.read.format("rmq").option("splitBytes", "2m").load(sys.argv[2])
sums = {}
places = frame.select("physicalOffset").rdd
for jvm, count, total in places.mapPartitions(who).collect():
    before = sums.get(jvm, (0, 0))
    sums[jvm] = before[0] + count, before[1] + total
print("RESULT", json.dumps([[jvm, *both] for jvm, both in sums.items()]))
spark.stop()
"""


class Daemon:
    """A Spark class that runs until it is told to stop."""

    def __init__(self, name, *arguments, environment):
        home = Path(environment["SPARK_HOME"])
        self.process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
            + [str(argument) for argument in arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.lines = []

    def wait_for(self, pattern):
        """The first line with the pattern; what it says is kept for the failure."""
        timer = threading.Timer(START_S, self.process.kill)
        timer.start()
        for line in self.process.stderr:
            self.lines.append(line)
            if re.search(pattern, line):
                timer.cancel()
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        raise AssertionError("".join(self.lines))

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        self.process.wait(30)
        self.process.stderr.close()


@pytest.fixture
def environment(tmp_path):
    problem = missing()
    if problem:
        pytest.skip(problem)
    paths = [str(Path(p).resolve()) for p in sys.path if p]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(Path(find_spec("pyspark").origin).parent),
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def check(done):
    assert done.returncode == 0, done.stderr[-4000:]
    (result,) = re.findall(r"^RESULT (.+)$", done.stdout, re.MULTILINE)
    rows = json.loads(result)
    shown = {jvm: count for jvm, count, _ in rows}
    sys.stdout.write(f"rows by executor: {shown}\n")
    assert len(rows) == 2, "both executors read"
    return sum(count for _, count, _ in rows), sum(total for _, _, total in rows)


@pytest.fixture
def store(tmp_path):
    writer = StoreWriter(tmp_path / "store", 8 << 20)
    writer.append(orders(COUNT))
    return writer.root


def run_job(master, store, environment):
    return subprocess.run(
        [sys.executable, "-c", JOB, master, str(store)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env=environment,
    )


def expected(store):
    from rmq_spark.options import Options
    from rmq_spark.segments.commit_log import find_end
    from rmq_spark.segments.plan import plan_ranges
    from rmq_spark.segments.reader import read_range, read_settings
    from rmq_spark.segments.schema import columns_of

    options = Options({"store": str(store), "columns": "physicalOffset"})
    reading = read_settings(options, columns_of(options))
    parts = plan_ranges(store, 0, find_end(store), split_bytes=1 << 30)
    batches = [batch for part in parts for batch in read_range(reading, part)]
    return COUNT, sum(sum(batch.column(0).to_pylist()) for batch in batches)


def test_a_standalone_cluster_reads_each_row_once(store, environment):
    port = free_port()
    ports = ["--host", "127.0.0.1", "--webui-port", 0]
    daemons = [Daemon("master.Master", *ports, "--port", port, environment=environment)]
    try:
        daemons[0].wait_for("Starting Spark master|elected leader")
        for _ in range(2):
            worker = Daemon(
                "worker.Worker", *ports, "--cores", 1, "--memory", "1g",
                f"spark://127.0.0.1:{port}", environment=environment,
            )  # fmt: skip
            daemons.append(worker)
            worker.wait_for("Successfully registered")
        done = run_job(f"spark://127.0.0.1:{port}", store, environment)
    finally:
        for daemon in reversed(daemons):
            daemon.stop()
    assert check(done) == expected(store)


def test_a_local_cluster_reads_each_row_once(store, environment):
    assert check(run_job("local-cluster[2,1,1024]", store, environment)) == expected(
        store
    )


def test_a_follower_writes_its_files_in_a_local_cluster(store, environment, tmp_path):
    """Driver and executors are separate processes; a row is in the table once."""
    log = tmp_path / "log"
    command = [
        sys.executable, "-m", "rmq_spark.cli", "follow", "--store", str(store),
        "--out", str(tmp_path / "out"), "--master", "local-cluster[2,1,1024]",
        "--batch-bytes", "8m", "--split-bytes", "2m", "--interval", "100ms",
    ]  # fmt: skip
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        timer = threading.Timer(LIMIT_S, process.kill)
        timer.start()
        try:
            first = process.stdout.readline()
        finally:
            process.terminate()
            process.wait(LIMIT_S)
            timer.cancel()
    assert process.returncode == 0, log.read_text()[-4000:]
    line = json.loads(first)
    assert (line["rows"], line["lag_bytes"], line["problem"]) == (COUNT, 0, None)
    assert line["batches"] > 1
    check_exact(tmp_path / "out", COUNT)
