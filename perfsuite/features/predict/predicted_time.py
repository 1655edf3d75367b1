"""The predicted time of cells as text. It is never in a table of measured numbers."""

from perfsuite.features.predict.prediction import PredictedTime
from perfsuite.system.units import show_ratio, show_seconds, show_whole

TITLES = ("predicted step (90 %)", "tokens/s", "MFU", "regime")


REGIMES = {
    "one node": "One node: steps of one node in half precision were fitted.",
    "several nodes": "Several nodes: steps of several nodes in half precision were fitted.",
    "few bits": "Few bits: the interval is that of products in fp8 or fp4.",
    "experts": "Experts: the interval is that of models with experts, whose tokens are routed evenly.",
    "host-bound": "Host-bound: the step waits for the CPU to launch kernels.",
    "new": "New: no step of this device or this software was fitted, so the interval is wide.",
}


def meaning(regime: str) -> str:
    """What its words mean, a sentence for each."""
    return " ".join(REGIMES[word] for word in regime.split(", ") if word in REGIMES)


def entries(time: PredictedTime | None) -> tuple[str, str, str, str]:
    """Step with interval, tokens per second, MFU, and regime; or the word for what has no closed form."""
    if time is None:
        return "", "", "", ""
    if time.untimed:
        return "–", "", "", f"no closed form: {time.untimed}"
    low, high = show_seconds(time.low_seconds), show_seconds(time.high_seconds)
    return (
        f"{show_seconds(time.predicted_step_seconds)} ({low}–{high})",
        show_whole(time.predicted_tokens_per_second),
        show_ratio(time.predicted_mfu),
        time.regime,
    )
