"""The tests run pytest in folders of their own with pytester. The plugin under test is the one that is installed."""

pytest_plugins = ["pytester"]
