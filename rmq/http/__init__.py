"""The pages of a node over HTTP: metrics, health, readiness."""
