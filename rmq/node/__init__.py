"""Processes: a broker, a name server or a controller, started and stopped in order.

`cli` and `testing` both use these modules, so tests run the code that users run.
"""
