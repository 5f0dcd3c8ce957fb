"""What all tests share: no property test has a deadline, as machines are shared and noisy."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
