"""Exit codes of all processes; imports nothing, because the entry needs it first."""

SHELL_BASE = 128
"""A process that a signal ends has this code and the number of the signal, as in
shells."""
