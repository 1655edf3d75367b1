"""How much memory a cell needs, without its device: traces of its own code, replayed through a model of the allocator."""
