"""The paper's experiments, one command each: jobs that are done once, and reports of what they found."""
