"""Reads the log of a store: plans ranges of its segments, decodes them to Arrow."""
