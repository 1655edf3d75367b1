"""How much memory a cell needs, without its device: its own code is traced, and the allocator replayed."""
