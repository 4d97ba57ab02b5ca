"""Memory budget: configuration, safetensors headers and spec to bytes per node and rank. Pure arithmetic."""
