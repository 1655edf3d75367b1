"""The parts of benchmarks/first_gpu.py, in the order in which they run: parts.py lists them."""
