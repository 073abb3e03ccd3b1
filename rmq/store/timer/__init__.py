"""Timed messages: the timer's log, wheel and checkpoint."""
