"""The names of `lang_bench.agents`, for agents that were written before it was a package of its own."""

from lang_bench.agents import *  # noqa: F403
