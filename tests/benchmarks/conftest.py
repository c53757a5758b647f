from known_checks import known_checks  # noqa: F401
