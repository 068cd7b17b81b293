"""Commands of `pgsluice`, one module or folder each; `gateway.cli` parses, `gateway.calls` dispatches."""
