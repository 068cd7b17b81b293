"""Commands of `pgsluice`, one module or folder each; `gateway.calls` calls them."""
