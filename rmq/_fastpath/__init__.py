"""Compiled leaves: bytes, addresses and descriptors. The rest of rmq imports from here."""
