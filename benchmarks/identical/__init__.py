"""Times that no release changes: what false_alarms.py takes ten equal rungs by."""
