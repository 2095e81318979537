"""Defaults of queries and audits, which help shows without importing what runs them."""

MEMORY_LIMIT = "4GB"
"""What a query may take before it spills to a temporary folder."""

FALSE_ALARM_RATE = 1e-6
"""How often a sound dataset fails, at most, over all questions together."""
