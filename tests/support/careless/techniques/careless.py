"""The libraries' loops without the refusal of fp16 on a CPU."""

import dataclasses

from perfsuite.techniques import loop

TECHNIQUES = tuple(
    dataclasses.replace(technique, name=f"careless_{technique.name}", why_not=None) for technique in loop.TECHNIQUES[1:]
)
