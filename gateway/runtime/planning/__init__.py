"""What an attempt or a reload needs before anything streams: plan, topics, owners, checks.

What is wrong with single tables is found here and holds these tables; only what concerns every
table refuses a start. How the plan follows from definitions is pure, in `gateway.definitions`.
"""
