"""Topics in a cluster of two executors, one of which is killed again and again."""

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'rmq[spark]' for this test")

from rmq.client.admin import AdminClient
from rmq.testing import BrokerThread
from rmq_spark.session import missing

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
COUNT = 60_000
KILLS = 3
JOB = """
import sys
from rmq_spark.session import start_session

name_server, folder, count = sys.argv[1:]
spark = start_session(
    "local-cluster[2,1,1024]",
    {"spark.executor.memory": "512m", "spark.sql.catalogImplementation": "in-memory",
     "spark.task.maxFailures": "20", "spark.sql.shuffle.partitions": "2"},
)
rows = spark.range(int(count)).selectExpr("CAST(id AS STRING) AS body")
sink = rows.repartition(8, "body").sortWithinPartitions("body").write.format("rmq")
sink = sink.option("nameServer", name_server).option("topic", "From")
sink.option("maxInFlight", "1").option("batchBytes", "8k").mode("append").save()
print("WRITTEN", flush=True)
query = (
    spark.readStream.format("rmq").option("nameServer", name_server)
    .option("subscribe", "From").option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", "10000").option("rowsPerPartition", "2000")
    .load().select("body").writeStream.format("rmq")
    .option("nameServer", name_server).option("topic", "To")
    .option("checkpointLocation", folder).trigger(availableNow=True).start()
)
query.awaitTermination()
print("COPIED", flush=True)
spark.stop()
"""


def workers_of(pid):
    """The Python workers of executors, below the process with this id."""
    parents, workers = {}, []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (path / "stat").read_text().rpartition(")")[2].split()
            parents[int(path.name)] = int(stat[1])
            if "pyspark.daemon" in (path / "cmdline").read_text():
                workers.append(int(path.name))

    def is_below(one):
        while one in parents:
            if one == pid:
                return True
            one = parents[one]
        return False

    daemons = [one for one in workers if parents[one] not in workers]
    return [one for one in workers if one not in daemons and is_below(one)]


def copies(broker, topic):
    """How often each row is stored; a repeated row has the key of the first."""
    by_key = {}
    for each in broker.messages(topic):
        by_key.setdefault(each.properties["UNIQ_KEY"], []).append(each.body)
    assert all(len(set(bodies)) == 1 for bodies in by_key.values())
    rows = Counter(int(bodies[0]) for bodies in by_key.values())
    return rows, sum(map(len, by_key.values()))


def test_workers_are_killed_while_they_send(tmp_path):
    problem = missing()
    if problem:
        pytest.skip(problem)
    paths = [str(Path(p).resolve()) for p in sys.path if p]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }
    settings = {"mappedFileSizeCommitLog": str(16 << 20)}
    with BrokerThread(tmp_path / "broker", settings) as broker:
        for topic in ("From", "To"):
            broker.create_topic(topic, 4)
        command = [
            sys.executable, "-c", JOB, broker.name_server, str(tmp_path / "c"),
            str(COUNT),
        ]  # fmt: skip
        with (
            (tmp_path / "log").open("w") as log,
            subprocess.Popen(
                command,
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            ) as job,
        ):
            try:
                killed = kill_workers(broker, job)
                told = job.stdout.read()
                job.wait(200)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(job.pid, signal.SIGKILL)
        assert job.returncode == 0, (tmp_path / "log").read_text()[-4000:]
        assert told.split() == ["WRITTEN", "COPIED"]
        rows, stored = copies(broker, "From")
        assert rows == Counter(range(COUNT))
        sys.stdout.write(f"{killed} kills, {stored - COUNT} repeated rows\n")
        rows, _ = copies(broker, "To")
        assert set(rows) == set(range(COUNT))
        assert killed == KILLS


def kill_workers(broker, job):
    """Kill a worker each time that the first topic has grown; how many were killed."""
    killed, size = 0, 0
    with AdminClient([broker.name_server]) as admin:
        queues = list(admin.queues("From"))
        while killed < KILLS and job.poll() is None:
            found = sum(admin.offset(30, "From", queue) for queue in queues)
            workers = workers_of(job.pid)
            if found > size and workers:
                size = found
                with contextlib.suppress(ProcessLookupError):
                    os.kill(workers[0], signal.SIGKILL)
                    killed += 1
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(0.1)
    return killed
