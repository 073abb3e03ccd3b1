"""The broker: tables, clients, the put pipeline, registration."""
