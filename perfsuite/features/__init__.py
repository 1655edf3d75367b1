"""What stands on the core, each with its commands, records, pages and tests. The core imports none of them."""
