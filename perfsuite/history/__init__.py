"""What releases of libraries changed: ladders of releases for asv, and what is told of them."""
