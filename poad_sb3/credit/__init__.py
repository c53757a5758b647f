"""Credit assignment: advantages of tokens and actions, and the losses; pure functions on arrays."""
