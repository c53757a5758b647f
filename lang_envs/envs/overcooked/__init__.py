"""Overcooked: one cook, a kitchen, and phrases for actions."""
