"""What the commands that run servers share: start, greeting, service manager."""
