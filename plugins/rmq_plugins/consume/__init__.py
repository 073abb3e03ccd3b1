"""Consuming: pulls, POP, lite topics, and the checks that they share."""
