"""Output for terminals and pipes: tables, texts, progress bars, full screens."""
