"""Processes: starts and stops a broker, a name server or a controller.

`cli` and `testing` both use these modules, so tests run the code that users run.
"""
