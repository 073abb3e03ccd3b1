import os
import subprocess
import sys

import pyarrow as pa
import pytest

from rmq.core.errors import ConfigError
from rmq_spark.options import Options
from rmq_spark.segments.schema import (
    SLIM,
    arrow_schema,
    columns_of,
    columns_of_schema,
    spark_schema,
)


def options(**given):
    return Options({"store": "s", **given})


def test_full_and_slim_and_named_columns():
    full = [column.name for column in columns_of(options())]
    assert len(full) == len(set(full)) == 20
    (named,) = columns_of(options(columns="offsetMsgId"))
    assert named.name not in full
    assert [c.name for c in columns_of(options(columns="slim"))] == list(SLIM)
    named = columns_of(options(columns="BODY, topic"))
    assert spark_schema(named) == "`body` binary, `topic` string"


@pytest.mark.parametrize(
    ("form", "kind"), [("map", "map<string,string>"), ("string", "string")]
)
def test_properties_have_two_forms(form, kind):
    columns = {c.name: c for c in columns_of(options(propertiesFormat=form))}
    assert columns["properties"].spark_type == kind
    columns = {c.name: c for c in columns_of(options(propertiesFormat="none"))}
    assert "properties" not in columns


def test_kafka_has_the_names_and_types_of_its_source():
    assert spark_schema(columns_of(options(schema="kafka"))) == (
        "`key` binary, `value` binary, `topic` string, `partition` int, "
        "`offset` bigint, `timestamp` timestamp, `timestampType` int"
    )
    last = columns_of(options(schema="kafka", includeHeaders="true"))[-1]
    assert (last.name, last.spark_type) == (
        "headers",
        "array<struct<key:string,value:binary>>",
    )


def test_a_schema_prunes_orders_and_casts():
    wanted = [("body", "string"), ("properties", "string"), ("queueid", "int")]
    columns = columns_of_schema(options(), wanted)
    assert [c.source for c in columns] == ["body", "propertiesText", "queueId"]
    assert arrow_schema(columns) == pa.schema(
        [("body", pa.string()), ("properties", pa.string()), ("queueid", pa.int32())]
    )


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (("nope", "string"), "there is no column nope; there are topic"),
        (("body", "int"), "body is binary, it cannot be read as int"),
        (("queueId", "bigint"), "queueId is int"),
    ],
)
def test_a_wrong_schema_is_told_in_a_sentence(wanted, sentence):
    with pytest.raises(ConfigError, match=sentence):
        columns_of_schema(options(), [wanted])


def imported_by(modules, looked_for):
    """Which of the packages are loaded once these modules are."""
    code = f"import sys, {modules}; print(*{looked_for} & {{m for m in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return done.stdout.strip()


def test_the_planner_and_the_exporter_do_not_need_pyspark():
    modules = (
        "rmq_spark.export.exporter, rmq_spark.segments.reader, "
        "rmq_spark.export.committers"
    )
    assert imported_by(modules, {"pyspark"}) == ""


def test_a_look_up_of_the_source_loads_nothing_heavy():
    pytest.importorskip("pyspark")
    assert imported_by("pyspark_rmq", {"pyarrow", "pandas", "numpy", "trio"}) == ""
