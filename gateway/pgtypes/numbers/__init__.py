"""Integers, numeric and floats."""
