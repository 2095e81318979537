"""From shards to checkpoints."""
