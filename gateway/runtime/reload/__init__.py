"""Definitions that change while the stream goes on: noticed, checked, put into force at one LSN.

`reloader` has a thread and a connection of its own, and is all that the loop knows of this. The
plan that it checks is made by `gateway.runtime.planning`, as for a start.
"""
