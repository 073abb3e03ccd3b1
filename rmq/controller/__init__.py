"""The controller: which broker of each group is master, and its sync state set."""
