"""One attempt from start to end, and who makes it: leader, standby, the pause before the next.

What a start needs before it touches the slot is prepared in `gateway.runtime.planning`; what
happens between two frames is in `gateway.runtime.loop`.
"""
