"""Histories: beside a table a second one, with every version of every row.

A history is a table of the subscription's format. Its position is in its own commits, so it follows
its topic by itself; the current table is asked only where the history begins.
"""
