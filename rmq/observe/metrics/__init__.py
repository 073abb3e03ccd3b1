"""Metrics for Prometheus: Java's names, rmq's own, and the text format."""
