"""A slow model of transactions: the state of each, without queues."""

OPEN, COMMITTED, ROLLED_BACK, GIVEN_UP = (
    "open",
    "committed",
    "rolled back",
    "had an invalid frame",
)


class ModelTransactions:
    """The first word counts; what was given up may come back by a crash."""

    def __init__(self):
        self.states = {}
        self.saved = {}

    def begin(self, key):
        self.states[key] = OPEN

    def end(self, key, state):
        """Note an end that was taken."""
        if self.states[key] == OPEN:
            self.states[key] = state

    def give_up(self, key):
        assert self.states[key] == OPEN
        self.states[key] = GIVEN_UP

    def save(self):
        """The broker's progress reaches the disk."""
        self.saved = dict(self.states)

    def crash(self):
        """What was given up after the last save may be open again."""
        for key, state in self.states.items():
            if state == GIVEN_UP and self.saved.get(key) != GIVEN_UP:
                self.states[key] = OPEN

    def keys(self, *states):
        return {key for key, state in self.states.items() if state in states}
