"""A simulated world for the gateway's loop: PostgreSQL, Kafka, processes and time from one seed.

What is simulated is what the loop sees through `gateway.runtime.ports`, and what a start is decided
by: WAL and its decoding, a slot, Kafka transactions with epochs, processes that are killed or
frozen. The loop, the assembly of transactions, group commit, the receiver, the history check and
the decision of a start are the product's own. Routing, copies, topics and connections are not in
here: other tests judge them on real servers.
"""
