"""What speaks to the served API: canary, smoke, bench."""
