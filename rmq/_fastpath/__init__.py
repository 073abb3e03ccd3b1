"""Compiled leaves: bytes, addresses, descriptors. The rest of rmq imports from here.

Import a name from its module. So a client loads no code of brokers, and runs where that
code cannot be compiled.

The stubs (`.pyi`) have signatures only; the docstrings are in the `.pyx`.
"""
