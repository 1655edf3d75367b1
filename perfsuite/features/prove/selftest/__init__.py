"""Faults put into real cells on purpose, to prove that the gate detects them."""
