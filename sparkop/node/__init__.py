"""Stdlib-only programs that run on a node. They import nothing of sparkop."""
