"""The tests run pytest in folders of their own with pytester. The plugin under test is the installed one."""

pytest_plugins = ["pytester"]
