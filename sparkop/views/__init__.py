"""Human, plain and JSON rendering of plans, status and reports."""
