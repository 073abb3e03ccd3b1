"""What a broker does and what is wrong with it: statistics, problems, views, metrics."""
