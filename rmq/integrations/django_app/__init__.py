"""The application of Django that has the command `rmqworker`."""
