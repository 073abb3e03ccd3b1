"""Work in steps, done in one thread."""


def result_of(steps):
    """Do every step; return the result."""
    while True:
        try:
            next(steps)()
        except StopIteration as end:
            return end.value
