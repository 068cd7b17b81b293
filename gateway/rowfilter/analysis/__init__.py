"""Parts of `gateway.rowfilter.analyze`: one module for each kind of node."""
