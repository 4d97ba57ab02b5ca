"""Clients of the served API that sparkop connects."""
