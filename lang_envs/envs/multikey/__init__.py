"""MultiKey: a diagnostic family where several words of an action decide, and others do not."""
