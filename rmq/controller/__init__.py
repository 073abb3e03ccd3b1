"""The controller: which broker of each group is master, and who follows it."""
