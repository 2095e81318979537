"""From shards and runs to answers."""
