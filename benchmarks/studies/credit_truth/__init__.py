"""`credit-truth`: mean and variance of every estimator of credit against the exact policy gradient."""
