"""The checkpoint on every node: listed, downloaded, copied, verified."""
