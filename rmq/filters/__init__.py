"""Filters of subscriptions: tags and SQL92. No input or output."""
