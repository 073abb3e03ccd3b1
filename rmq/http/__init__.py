"""What a node tells over HTTP: metrics, health, readiness."""
