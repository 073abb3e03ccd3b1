"""Laboratories: long measurements and experiments. `make lab` lists them."""
