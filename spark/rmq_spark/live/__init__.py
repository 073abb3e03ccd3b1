"""Reads topics of running brokers: plans ranges of queues, pulls and decodes them."""
