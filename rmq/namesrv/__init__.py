"""The name server: routes and key-value configuration."""
