"""Commands that run servers: broker, container, controller, name server."""
