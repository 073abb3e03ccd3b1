"""Property tests of the protocol are the same in every run and on a busy machine."""

from hypothesis import settings

settings.register_profile("protocol", deadline=None, derandomize=True)
settings.load_profile("protocol")
