"""Compiled leaves: bytes, addresses, descriptors. The rest of rmq imports from here.

Import a name from its module. So a client loads nothing of what serves a broker, and
runs where that cannot be compiled.

The stubs (`.pyi`) have signatures only; the docstrings are in the `.pyx`.
"""
