"""Writes what transformers builds from each config of hub_configs.toml, so that a plan of such a name builds nothing.

python benchmarks/hub_architectures.py    # writes perfsuite/features/predict/hub_architectures.json
"""

import msgspec

from perfsuite.features.predict.architecture import OF_HUB, NotBuilt, build
from perfsuite.features.predict.hub_names import CONFIGS
from perfsuite.records.codec import write_bytes


def content() -> bytes:
    """The content of the file. Raises ValueError for a config that transformers does not build."""
    found = dict(zip(CONFIGS, build(list(CONFIGS.values())), strict=True))
    if failed := [name for name, one in found.items() if isinstance(one, NotBuilt)]:
        raise ValueError(f"not built: {', '.join(failed)}")
    return msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"


if __name__ == "__main__":
    write_bytes(OF_HUB, content())
