"""Topics that keep the last message of each key."""
