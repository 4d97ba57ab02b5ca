"""sparkop: one large model over NVIDIA DGX Sparks, from one ClusterSpec."""

__version__ = "0.1.0"
