"""The engine of all studies: jobs in worker processes, pieces on disk, findings and pictures."""
