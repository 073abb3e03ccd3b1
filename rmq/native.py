"""What plugins may use of the compiled modules."""

from rmq._fastpath import java_hash, tags_code

__all__ = ["java_hash", "tags_code"]
