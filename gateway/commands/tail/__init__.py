"""``pgsluice tail``: the changes of a subscription as they are published, in commit order.

`command` finds the topics and what of them is wanted; `lines` describes one record, for people and
for programs. How topics are read in commit order is `gateway.sink.reading.commit_order`.
"""
