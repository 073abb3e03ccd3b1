"""`python -m rmq`."""

from rmq.cli import main

main(prog_name="rmq")
