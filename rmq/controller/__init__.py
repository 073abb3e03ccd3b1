"""The controller: the master of each group, and its sync state set."""
