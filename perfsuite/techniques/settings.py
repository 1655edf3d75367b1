"""Settings: which of a library's options a cell states. Where a cell states all, a changed default changes nothing."""

import functools

from perfsuite.catalog.definitions import Proposal, Technique


def sets_nothing(proposal: Proposal) -> str:
    """Why the cell would be the same one without it: there is no library that it leaves its defaults to."""
    if "deepspeed" in proposal.engine.packages or "hf_trainer" in proposal.techniques:
        return ""
    return f"{proposal.engine.name} leaves every default to torch as it is: the cell would be the same."


_settings = functools.partial(Technique, slot="settings", order=75)
TECHNIQUES = (
    _settings(name="stated", meaning="Every option that changes numbers or sizes is stated.", default=True),
    _settings(
        name="quickstart",
        meaning="Only what the strategy names is stated, as in the quick start of DeepSpeed or transformers' Trainer. "
        "All else is the library's default, so that a changed default is seen.",
        sets={"stated": False},
        why_not=sets_nothing,
    ),
)
