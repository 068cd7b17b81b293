"""The running gateway: the daemon, and the ports by which it knows the edges.

`lifecycle` makes attempts, `planning` prepares them, `loop` runs them. Meanwhile `copy` copies
tables, and `reload` notices definitions that change. Whatever can be decided without I/O is a pure
function here or in the packages below.
"""
