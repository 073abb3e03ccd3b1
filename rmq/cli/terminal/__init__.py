"""Output for terminals: tables, texts, progress bars, full screens."""
