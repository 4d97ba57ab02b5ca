"""Observe, reconcile (pure), execute, converge; lease and history."""
