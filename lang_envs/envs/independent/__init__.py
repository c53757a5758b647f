"""The base of KeyToken, MultiKey and Parity: decisions that do not depend on each other."""
