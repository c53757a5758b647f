"""KeyToken: a diagnostic family in which one word of an action decides."""
