"""The gateway's own topics: progress, requests of commands, owners of subscriptions' topics.

How their records look is in `gateway.envelope`; here they are written and read back.
"""
