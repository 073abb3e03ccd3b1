"""What a broker does, and what is wrong: statistics, problems, views, metrics."""
