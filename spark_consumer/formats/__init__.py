"""Table formats: how subscriber tables are stored, written, evolved and read back.

One folder for each format. What no format decides, as how columns follow those of a topic, is here.
"""
