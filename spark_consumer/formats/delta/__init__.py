"""Subscriber tables in Delta Lake, and all that the job knows of Delta.

Its private classes are used in `internals`, and `check` says at start whether that can be used; by
`public` and MERGE the same is done without.
"""
