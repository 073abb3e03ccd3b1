"""A container: several brokers on one machine, each a process, watched as one.

Known in Java as `BrokerContainer`, where the brokers share a process.
"""
