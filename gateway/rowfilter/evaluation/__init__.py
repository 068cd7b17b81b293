"""Typed filters as something that can be run: closures, generated Python, tables for C. Pure.

The closures are the readable reference; the other forms must agree with them, and with the server.
What a filter means is decided one folder up.
"""
