"""Subscriber tables in Iceberg, format version 3, and all that the job knows of Iceberg.

Only public classes are used: its Java API in the driver, and its writer, MERGE and actions in
Spark. How a commit is bound to the state that was read is in `metadata` and `workspace`.
"""
