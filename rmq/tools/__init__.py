"""Offline tools: check and repair a store, and check it while its broker runs.

`repair`, `settle`, `heal` and `accept_loss` take the lock of a stopped store and change
it.  All other tools open files only for reading and take no lock.  Only this package
needs numpy: no broker process imports it.
"""
