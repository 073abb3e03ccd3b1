"""Exports: batches of messages become files and manifests, each exactly once."""
