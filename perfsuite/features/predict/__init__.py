"""How much memory a cell needs, without its device: traces its own code, and replays the allocator."""
