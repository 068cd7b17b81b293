"""An attempt from start to end; leader and standby; the pause before the next attempt.

Preparations of a start, before it touches the slot, are in `gateway.runtime.planning`; the loop
between two frames is in `gateway.runtime.loop`.
"""
