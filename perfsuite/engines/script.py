"""A user's own training script, run as it is by its own launcher. Its process attaches: rank/script/attached.py."""

from perfsuite.catalog.definitions import Engine
from perfsuite.rank.script.script_trainer import ScriptTrainer

ENGINES = (Engine(name="script", process="script", trainer=ScriptTrainer, source="perfsuite"),)
