"""Row filters that a server judges: its evaluator, and which texts it may be given.

The questions are made in `gateway.rowfilter.server`.
"""
