"""Table formats: how subscriber tables are stored, written, evolved and read back.

`protocol` is what the job needs of a format. Each one is a folder that implements it, and a line in
`choice`. Decisions that no format makes, such as how columns follow those of a topic, are here.
"""
