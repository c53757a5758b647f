"""`python -m lang_envs.cli`: the command `lang-envs`."""

from lang_envs.cli import main

main()
