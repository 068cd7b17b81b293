"""The configuration: one declaration of every setting, and the one parser of both programs.

A setting is one field of a class in `tables`: its type, default, range and meaning stand there, and
the environment's variable, the errors and the reference in docs/operations.md follow from it.
`parser` reads a file and the environment for the gateway and for the Spark job, which are deployed
without each other; therefore nothing here imports either of them, nor anything but Python's own
library. Checks that only one of them can make (of a connection string, of the slots of groups) are
theirs.
"""
