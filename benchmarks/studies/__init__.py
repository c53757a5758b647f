"""The paper's experiments, one command each: jobs that run once, and reports of their results."""
