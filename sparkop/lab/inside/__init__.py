"""Programs that run in the lab: standard library only, each a file of its own, started by path."""
