"""The base of KeyToken and MultiKey: decisions that do not depend on each other."""
