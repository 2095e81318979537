"""From raw text to shards. Never imports torch."""
