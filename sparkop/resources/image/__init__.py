"""The engine's image on every node: pulled, built or brought over the fabric."""
