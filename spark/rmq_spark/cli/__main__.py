"""`python -m rmq_spark.cli`."""

from rmq_spark.cli import main

main(prog_name="rmq-spark")
