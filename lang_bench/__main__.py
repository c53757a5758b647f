"""`python -m lang_bench`: the command `lang-bench`."""

from lang_bench import main

if __name__ == "__main__":  # workers that are started afresh import this file
    main()
