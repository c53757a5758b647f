"""DataSciCoding: write scikit-learn code for a table; an open action space, and a sandbox for the code."""
