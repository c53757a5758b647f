"""Our environments where people train: GEM, AgileRL, OpenEnv, TRL, verifiers, SkyRL and Inspect.

All of them drive a `TextEnv`. A module is imported when it is used, and only then the package that it is for.
"""

from lang_envs.bridges.text_env import TextEnv, text_env

__all__ = ["TextEnv", "text_env"]
