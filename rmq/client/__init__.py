"""Programs that talk to brokers and name servers."""
