"""perfsuite's own tests and benchmarks use the plugin that is installed; nothing is configured here twice."""

pytest_plugins = ["pytester"]
