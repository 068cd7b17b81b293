"""Changes in Spark frames: whatever their number and the size of their table.

`writer` decodes an epoch and lets a strategy write it; `guessed` tries to write a share as it is
read.
"""
