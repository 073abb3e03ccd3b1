"""Observation of a broker: statistics, problems, views, metrics."""
