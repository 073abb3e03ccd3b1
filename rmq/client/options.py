"""Checks of options: ConfigError names the one that is wrong."""

from rmq.core.errors import ConfigError


def check_positive(**options: float) -> None:
    """Refuse an option that is not positive."""
    for name, value in options.items():
        if value <= 0:
            raise ConfigError(f"{name}: {value} is not positive")
