"""Ten thousand broken files: never a traceback, never a pass, never a lost file.

A mutation changes a sound file at one place, as a text (a bit rots, a write is torn, an editor slips) or as JSON (a
field goes, comes, or holds what it never should). What is read must be refused in one sentence, or be red, or hold the
same numbers as before.
"""

import copy
import json
import math
import random
from typing import Any

import pytest
from gate_samples import CELL, LAUNCH, METRICS, baseline, measurement, rank_sample, with_measurement

from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.store import Store
from perfsuite.compare.folds import GatherError
from perfsuite.compare.gather import LaunchFacts, gather
from perfsuite.compare.judge import judge
from perfsuite.errors import PerfsuiteError
from perfsuite.records import codec
from perfsuite.records.sample import RankSample
from perfsuite.records.verdict import RED
from perfsuite.settings.keys import TIME_TOLERANCE, TIMEOUT, WARMUP
from perfsuite.settings.options import CAPACITY, LONG, STEPS
from perfsuite.settings.setting import Setting

CONSENT = Acceptance(how="a test", metrics=METRICS)
BASELINES, RESULTS, SETTINGS = 1500, 1000, 700
JUNK: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    10**400,
    -(10**30),
    1e308,
    float("nan"),
    float("inf"),
    "",
    "1",
    "x" * 1000,
    [],
    {},
    [[]],
    [None],
)
"""What a field can hold that it should not; NaN and infinity are written as Python writes them."""


def mutate_text(text: bytes, draw: random.Random) -> bytes:
    """Cut, flip, drop, double or replace some bytes."""
    at = draw.randrange(len(text))
    return draw.choice(
        [
            lambda: text[:at],
            lambda: text[:at] + bytes([text[at] ^ (1 << draw.randrange(8))]) + text[at + 1 :],
            lambda: text[:at] + text[at + draw.randrange(1, 20) :],
            lambda: text + text[at:],
            lambda: text[:at] + draw.randbytes(4) + text[at:],
            lambda: (
                text[:at] + draw.choice([b'"', b"}", b"[", b",", b"\0", b"\xff", b"9", b"-", b"e9"]) + text[at + 1 :]
            ),
        ]
    )()


def mutate_json(text: bytes, draw: random.Random) -> bytes:
    """Replace, remove or add one field anywhere."""
    root = json.loads(text)
    places = []

    def walk(node):
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(root)
    node, key = draw.choice(places)
    action = draw.randrange(4)
    if action == 0:
        del node[key]
    elif action == 1 and isinstance(node, dict):
        node[draw.choice(["surprise", f"{key}x"])] = copy.deepcopy(node[key])
    elif action == 2 and isinstance(node[key], int | float) and not isinstance(node[key], bool):
        node[key] = draw.choice([node[key] + 1, -node[key], node[key] * 2, node[key] * 1000, node[key] / 3])
    else:
        node[key] = draw.choice(JUNK)
    return json.dumps(root).encode()


def mutations(text: bytes, count: int, seed: int):
    """So many broken versions of the text; the seed makes a failure repeat."""
    draw = random.Random(seed)
    for number in range(count):
        yield (mutate_text if number % 2 else mutate_json)(text, draw)


def held(measured) -> dict:
    """The numbers that are held to equality, whose change no pass may hide."""
    exact = [metric.name for metric in METRICS if metric.hold == "exact"]
    return {name: (measured.readings[name].value, measured.readings[name].parts) for name in exact}


def sentence(error: PerfsuiteError) -> str:
    """The error's text, which must be one line that says something."""
    text = str(error)
    assert text.strip()
    assert "Traceback" not in text
    return text


def test_no_broken_baseline_passes(tmp_path, monkeypatch):
    """Refused with the file's name, or red, or the same numbers; and the file stays as it is."""
    monkeypatch.setattr("os.fsync", lambda file: None)  # each takes milliseconds, and no file here outlives a crash
    store, new, whole = Store(tmp_path), measurement(), codec.encode(baseline())
    path = store.path(CELL)
    path.parent.mkdir()
    named, counts = 0, {"refused": 0, "red": 0, "same": 0}
    for broken in mutations(whole, BASELINES, seed=1):
        path.write_bytes(broken)
        try:
            loaded = store.load(CELL)
        except PerfsuiteError as error:
            named += path.name in sentence(error)
            counts["refused"] += 1
            with pytest.raises(PerfsuiteError):
                store.save(baseline(), replaces=baseline(), consent=Acceptance(how="all", metrics=METRICS))
        else:
            verdict = judge(new, loaded, METRICS, strategy="zero3")
            if verdict.status in RED:
                counts["red"] += 1
            else:
                assert held(loaded.measurement) == held(new), broken
                counts["same"] += 1
        assert path.read_bytes() == broken

    assert sum(counts.values()) == BASELINES
    assert named == counts["refused"] > BASELINES / 2
    assert counts["red"] > 20


def test_no_broken_result_passes():
    """A rank's result that is damaged is refused, or makes the cell red, or has the same numbers."""
    sound = [rank_sample(0), rank_sample(1)]
    conditions: dict[str, Any] = {"machine": measurement().machine, "wall_seconds": 1.0, "capacity_bytes": None}
    reference = gather(LaunchFacts(cell=CELL, **conditions), sound, METRICS)
    old = with_measurement(baseline(), readings=reference.readings, launches=[LAUNCH] * 3)
    refused = 0
    for broken in mutations(codec.encode(sound[1]), RESULTS, seed=2):
        try:
            sample = codec.decode(broken, RankSample, "rank1.json")
            new = gather(LaunchFacts(cell=CELL, **conditions), [sound[0], sample], METRICS)
        except (PerfsuiteError, GatherError) as error:
            sentence(error)
            refused += 1
            continue
        verdict = judge(new, old, METRICS, strategy="zero3")

        assert verdict.status in RED or held(new) == held(reference), broken
    assert refused > RESULTS / 2


def test_no_broken_setting_is_a_traceback():
    """Every text of a setting gives a value within its limits, or one sentence."""
    sound: list[tuple[Setting[float | None], str]] = [
        *((STEPS, "10"), (WARMUP, "5"), (LONG, "100"), (TIMEOUT, "1.5"), (TIME_TOLERANCE, "0.02"), (CAPACITY, "24GiB"))
    ]
    draw, accepted = random.Random(3), 0
    for _ in range(SETTINGS):
        setting, text = draw.choice(sound)
        broken = mutate_text(text.encode(), draw).decode("latin-1")
        try:
            value = setting.value_of(draw.choice([str(junk) for junk in JUNK] + [broken]))
        except PerfsuiteError as error:
            sentence(error)
        else:
            accepted += 1

            assert (0 if setting in (WARMUP, LONG) else 1e-300) <= (value or 0) < math.inf
    assert 0 < accepted < SETTINGS
