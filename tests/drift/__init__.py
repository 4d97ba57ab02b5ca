"""The drift table, row by row, on the lab under a running watch: ``python -m tests.drift``."""
