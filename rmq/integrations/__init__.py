"""Task queues on rmq: transports and backends of other projects.

Each module is imported by its users only, and needs the library of its name: nothing in
rmq imports this room. `task_link` is the blocking connection that all of them use.
"""
