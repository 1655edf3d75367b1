"""Samples of lines: what is a batch, an evaluation, or other code of the loop follows from where the loop trains."""

import subprocess
import sys
import threading

from perfsuite.meters.line_times import SampledFrame, by_place, running_lines


def frame(function: object, line: int, is_called: bool = True) -> SampledFrame:
    """A line of that function."""
    return SampledFrame(function.__code__, line, is_called)  # type: ignore[attr-defined]


def loop() -> None:
    """Trains."""


def step() -> None:
    """One step."""


def make_batch() -> None:
    """Makes what a step needs."""


def evaluate() -> None:
    """Evaluates."""


def phases(*samples: tuple[str, tuple[SampledFrame, ...]]) -> list[str]:
    """The phase of each sample, in their order."""
    found = by_place(dict.fromkeys(samples, 1.0))
    assert len(found) == len(samples)
    return [phase for phase, _ in found]


SAMPLES = """
import sys, threading, weakref
from perfsuite.meters.line_times import running_lines

class Held: pass

def made(calls):
    if calls:
        return made(calls - 1)
    held = Held()
    return weakref.ref(held)

def sample():
    while not ended.is_set():
        samples.append(len(running_lines(thread)))

ended, samples, alive, thread = threading.Event(), [], [], threading.get_ident()
sys.setswitchinterval(1e-6)
sampling = threading.Thread(target=sample)
sampling.start()
while len(samples) < 6000:
    left = made(321)
    alive.append(left() is not None)
ended.set()
sampling.join()
print(max(samples), sum(alive))
"""


TRAINS = [("forward", (frame(loop, 12), frame(step, 3))), ("backward", (frame(loop, 13),))]


def test_what_is_before_the_first_line_that_trains_is_the_batch() -> None:
    """In the loop's own function, or in one that it calls there."""
    before = [("other", (frame(loop, 10), frame(make_batch, 90))), ("other", (frame(loop, 11),))]
    later = [("other", (frame(loop, 14),)), ("other", (frame(loop, 15), frame(make_batch, 90)))]

    assert phases(*TRAINS, *before, *later) == ["forward", "backward", "batch", "batch", "other", "other"]


def test_an_argument_of_the_line_that_trains_is_a_batch() -> None:
    """Unless a library calls it, as it does with a callback."""
    argument = ("other", (frame(loop, 12), frame(make_batch, 90)))
    callback = ("other", (frame(loop, 12), frame(make_batch, 91, is_called=False)))

    assert phases(*TRAINS, argument, callback)[2:] == ["batch", "other"]


def test_a_loss_of_the_line_that_trains_is_no_batch() -> None:
    """As in ``loss = triplet(model(a), model(b))``: it has the outputs already."""
    loss = ("loss", (frame(loop, 12), frame(evaluate, 40)))
    second_batch = ("loss", (frame(loop, 11), frame(make_batch, 90)))  # after an output that nothing trains on

    assert phases(*TRAINS, loss, second_batch)[2:] == ["loss", "batch"]


def test_an_evaluation_has_the_line_that_calls_the_model() -> None:
    """And all that its function does."""
    inside = ("evaluation", (frame(loop, 20), frame(evaluate, 50), frame(step, 3)))
    own = ("other", (frame(loop, 20), frame(evaluate, 51)))
    found = by_place(dict.fromkeys([*TRAINS, inside, own], 1.0))

    assert [(phase, stack[-1].line) for phase, stack in found][2:] == [("evaluation", 50), ("evaluation", 51)]


def test_without_a_line_of_the_users_nothing_is_known() -> None:
    """Such as in a thread of a library."""
    assert phases(("forward", ()), ("other", ())) == ["forward", "other"]


def test_a_sample_has_every_frame_from_the_innermost_on() -> None:
    """With the line that each of them runs."""
    _, (inner, line), (test, _), *_ = (lambda: running_lines(threading.get_ident()))()

    assert (inner.co_name, test.co_name) == ("<lambda>", "test_a_sample_has_every_frame_from_the_innermost_on")
    assert line == inner.co_firstlineno


def test_samples_keep_nothing_that_a_function_has_left() -> None:
    """A thread that is interrupted while it walks from frame to frame kept tensors: the peak was another each time. In
    a process of its own: pytest's has audit hooks, which are Python code and so let other threads run.
    """
    done = subprocess.run([sys.executable, "-c", SAMPLES], capture_output=True, text=True, check=True)

    most_frames, alive = map(int, done.stdout.split())
    assert most_frames > 300 and alive == 0
