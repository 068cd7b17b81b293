"""Subscriber tables in Delta Lake, and all that the job knows of Delta.

What is not public of it is in `internals`, and `check` says at start whether that can be used; by
`public` and MERGE the same is done without.
"""
