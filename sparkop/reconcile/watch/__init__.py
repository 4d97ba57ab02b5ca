"""The loop that keeps a cluster as its spec says, and what it looks at, says and waits for."""
