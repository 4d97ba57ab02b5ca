"""The only place with SSH and Docker."""
