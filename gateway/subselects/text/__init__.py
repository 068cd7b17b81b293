"""Filters with sub-selects as written: names, normalisation, and what cannot be followed. Pure.

Whether a plain part is allowed, and what its types and operators are, is for the server to say.
"""
