"""KeyToken: a diagnostic family where one word of an action decides."""
