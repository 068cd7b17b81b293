"""Executable forms of typed filters: closures, generated Python, tables for C. Pure.

The closures are the readable reference; the other forms must agree with them, and with the server.
The meaning of a filter is decided one folder up.
"""
