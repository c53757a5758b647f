"""The environment families, one folder each, and the search that their oracles share."""
