"""Exit codes of all processes; imports nothing, because the entry needs it first.

Usage errors have code 2, which click knows.
"""

FAILED = 1
UNREACHABLE = 3
OUTPUT_FAILED = 4
"""stdout cannot be written."""

REFUSED = 5
"""A server refused the request, or has no such topic, group or broker."""

SHELL_BASE = 128
"""A process that a signal ends has this code and the number of the signal, as in
shells."""

INTERRUPTED = 130
"""The code for Ctrl-C, which is signal 2."""
