"""Studies: measured claims, each by one command, with seeds, versions and hardware recorded."""
