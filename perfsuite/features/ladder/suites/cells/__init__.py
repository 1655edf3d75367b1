"""perfsuite's cells as series of asv: traced without noise, and measured in real launches if asked for."""
