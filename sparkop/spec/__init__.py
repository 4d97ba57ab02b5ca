"""The ClusterSpec: models, loading with positions, overlays, schema."""
