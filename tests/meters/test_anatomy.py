"""Anatomy of a peak, on logs written by hand: which moment is the fullest, and what each byte of it was for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsuite.errors import RankError
from perfsuite.rank.memory.anatomy import CATEGORIES, Mark, dissect
from perfsuite.rank.memory.cuda_history import read_history

Event = tuple[int, int, str]
NAMED = ("parameters", "master_parameters", "optimizer_state", "gradients")
STEP = ("batch", "forward", "backward", "optimizer", "end")


def mark(number: int) -> Event:
    """The event of a mark."""
    return (-1, number, "")


def marks(*phases: str, named: dict[int, dict[int, str]] | None = None) -> dict[int, Mark]:
    """Marks of these phases in order; ``named`` maps a mark's number to what the trainer named there."""
    return {number: Mark(phase, (named or {}).get(number, {})) for number, phase in enumerate(phases)}


def some(sizes: dict[str, int]) -> dict[str, int]:
    """Without the categories that are empty."""
    return {category: size for category, size in sizes.items() if size}


def test_the_fullest_moment() -> None:
    """The peak is the moment of most live bytes, with the phase in which it came, not the end."""
    log = [mark(0), (1, 100, ""), mark(1), (2, 50, ""), (2, -50, ""), (3, 40, ""), mark(2), (1, -100, "")]
    anatomy = dissect(log, marks("batch", "forward", "backward"))

    assert (anatomy.peak_bytes, anatomy.phase) == (150, "forward")
    assert some(anatomy.categories) == {"batch": 100, "temporaries": 50}


def test_what_the_step_before_has_made() -> None:
    """It counts if it is alive at the peak and is released afterwards: what stays for good is a state."""
    begins = [mark(0), (2, 5, "state"), (1, 10, "clone"), mark(1)]
    log = [*begins, (3, 20, "linear"), (1, -10, ""), (3, -20, ""), (4, 1, "clone"), mark(2), (4, -1, "")]
    anatomy = dissect(log, marks("batch", "batch", "batch"))

    assert (anatomy.peak_bytes, anatomy.carried) == (35, {("batch", "clone"): 10})


def test_the_first_of_equal_moments() -> None:
    """Of two moments that are equally full the first is the peak."""
    log = [mark(0), mark(1), (1, 10, "first"), (1, -10, ""), mark(2), (1, 10, "second")]
    anatomy = dissect(log, marks("batch", "forward", "backward"))

    assert (anatomy.phase, anatomy.operations) == ("forward", {("temporaries", "first"): 10})


def test_building_the_model_is_no_peak() -> None:
    """What was alive only before the first batch does not count; what still lives does."""
    log = [(1, 1000, ""), (2, 10, ""), (1, -1000, ""), mark(0), (3, 5, "")]
    anatomy = dissect(log, marks("batch"))

    assert anatomy.peak_bytes == 15
    assert some(anatomy.categories) == {"temporaries": 10, "batch": 5}


def test_the_whole_log_may_be_alive_at_the_first_batch() -> None:
    """The mark of the first batch is itself a moment, though nothing is allocated at it."""
    anatomy = dissect([(1, 7, ""), mark(0), (1, -7, "")], marks("batch"))

    assert (anatomy.peak_bytes, anatomy.phase) == (7, "batch")


@pytest.mark.parametrize("category", NAMED)
@pytest.mark.parametrize("phase", STEP)
def test_named(category: str, phase: str) -> None:
    """A block is what the trainer named it at any mark in its life, for the whole of its life."""
    log = [mark(0), mark(1), (1, 8, ""), mark(2), (1, -8, "")]
    anatomy = dissect(log, marks("batch", phase, "end", named={2: {1: category}}))

    assert some(anatomy.categories) == {category: 8}


@pytest.mark.parametrize(("first", "second"), [(a, b) for a in NAMED for b in NAMED])
def test_the_first_name_in_order_holds(first: str, second: str) -> None:
    """A storage with two names is the category that stands first, in whichever order they are given."""
    log = [mark(0), (1, 8, ""), mark(1), mark(2)]
    anatomy = dissect(log, marks("batch", "forward", "backward", named={1: {1: first}, 2: {1: second}}))

    assert some(anatomy.categories) == {min(first, second, key=NAMED.index): 8}


def test_a_name_is_of_a_block_not_of_an_address() -> None:
    """A block at an address that was named before, after its release, is another block."""
    log = [mark(0), (1, 8, ""), mark(1), (1, -8, ""), (1, 9, ""), mark(2)]
    anatomy = dissect(log, marks("batch", "optimizer", "end", named={1: {1: "gradients"}}))

    assert some(anatomy.categories) == {"temporaries": 9}


def test_a_name_without_a_block() -> None:
    """An address that is named but not alive, such as one from before the log, changes nothing."""
    anatomy = dissect([mark(0), (1, 8, "")], marks("batch", named={0: {99: "parameters"}}))

    assert some(anatomy.categories) == {"batch": 8}


def test_activations() -> None:
    """What a forward allocated and the backward found alive is an activation; what the forward released is not."""
    log = [mark(0), mark(1), (1, 8, ""), (2, 1, ""), (2, -1, ""), mark(2), (3, 4, "")]
    anatomy = dissect(log, marks("batch", "forward", "backward"))

    assert some(anatomy.categories) == {"activations": 8, "temporaries": 4}


def test_activations_of_a_later_micro_batch() -> None:
    """Every forward's survivors are activations, also the second micro-batch's."""
    log = [mark(0), mark(1), (1, 8, ""), mark(2), (1, -8, ""), mark(3), (2, 9, ""), mark(4)]
    anatomy = dissect(log, marks("batch", "forward", "backward", "forward", "backward"))

    assert some(anatomy.categories) == {"activations": 9}


@pytest.mark.parametrize(
    ("phase", "category"),
    [
        ("batch", "batch"),
        ("forward", "temporaries"),
        ("backward", "temporaries"),
        ("optimizer", "temporaries"),
        ("end", "temporaries"),
    ],
)
def test_unnamed(phase: str, category: str) -> None:
    """A block without a name is the batch's if it came with it, else temporary."""
    anatomy = dissect([mark(0), mark(1), (1, 8, ""), mark(2)], marks("batch", phase, "end"))

    assert some(anatomy.categories) == {category: 8}


@pytest.mark.parametrize("name", ["", "gradients"])
@pytest.mark.parametrize("phase", ["batch", "forward", "backward"])
def test_communication(phase: str, name: str) -> None:
    """What a collective touched is communication, before batch and activations, unless the trainer named it."""
    log = [mark(0), mark(1), (1, 8, ""), (1, 0, "all_reduce"), (2, 0, "all_reduce"), mark(2)]
    anatomy = dissect(log, marks("batch", phase, "backward", named={2: {1: name} if name else {}}))

    assert some(anatomy.categories) == {name or "communication": 8}


def test_operations() -> None:
    """The bytes at the peak are separated by the operator that allocated them, within each category."""
    log = [mark(0), mark(1), (1, 8, "softmax"), (2, 8, "softmax"), (3, 1, "mm"), mark(2), (4, 2, "softmax")]
    anatomy = dissect(log, marks("batch", "forward", "backward"))

    assert anatomy.operations == {
        ("activations", "softmax"): 16,
        ("activations", "mm"): 1,
        ("temporaries", "softmax"): 2,
    }


def test_largest() -> None:
    """The most that a category held at any mark, though it was gone at the peak."""
    log = [mark(0), mark(1), (1, 8, ""), mark(2), (1, -8, ""), mark(3), (2, 100, ""), mark(4)]
    anatomy = dissect(log, marks("batch", "backward", "optimizer", "end", "batch", named={2: {1: "gradients"}}))

    assert anatomy.largest["gradients"] == 8
    assert anatomy.categories["gradients"] == 0


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Event], dict[int, Mark]]:
    """Whatever an allocator can write: no address is allocated twice at once; a release may be of an older block."""
    events: list[Event] = []
    found: dict[int, Mark] = {}
    live: set[int] = set()
    addresses = st.integers(0, 6)
    kinds = st.lists(st.sampled_from("mmaaaarrt"), max_size=40)
    for kind in (*draw(kinds), "b", *draw(kinds)):
        address = draw(addresses)
        if kind in "mb":
            phase = "batch" if kind == "b" else draw(st.sampled_from(("build", *STEP)))
            events.append(mark(len(found)))
            found[len(found)] = Mark(phase, draw(st.dictionaries(addresses, st.sampled_from(NAMED), max_size=3)))
        elif kind == "a" and address not in live:
            live.add(address)
            events.append((address, draw(st.integers(1, 2**40)), draw(st.sampled_from(("mm", "softmax", "")))))
        elif kind == "r":
            live.discard(address)
            events.append((address, -draw(st.integers(1, 2**40)), ""))
        elif kind == "t":
            events.append((address, 0, "all_reduce"))
    return events, found


@given(logs())
def test_sums(log: tuple[list[Event], dict[int, Mark]]) -> None:
    """Categories and operations each sum to the peak exactly, and no moment of the steps was fuller."""
    events, found = log
    anatomy = dissect(events, found)
    live: dict[int, int] = {}
    fullest, stepping = 0, False
    for address, size, _ in events:
        if address == -1:
            stepping = stepping or found[size].phase == "batch"
        elif size > 0:
            live[address] = size
        elif size < 0:
            live.pop(address, None)
        fullest = max(fullest, sum(live.values()) if stepping else 0)

    assert anatomy.peak_bytes == fullest
    assert tuple(anatomy.categories) == CATEGORIES
    assert sum(anatomy.categories.values()) == sum(anatomy.operations.values()) == fullest


CUDA_MARK = [
    {"action": "alloc", "addr": 2048, "size": 509},
    {"action": "segment_alloc", "addr": 5000, "size": 2097152},
    {"action": "alloc", "addr": 2560, "size": 503},
    {"action": "free_requested", "addr": 2560, "size": 503},
    {"action": "free_completed", "addr": 2560, "size": 503},
    {"action": "free_requested", "addr": 2048, "size": 509},
    {"action": "free_completed", "addr": 2048, "size": 509},
]


def test_cuda_history_becomes_events() -> None:
    """CUDA's memory history is read as allocations and requested frees, with the marks where their signs are."""
    trace = [
        {"action": "segment_alloc", "addr": 1000, "size": 2097152},
        {"action": "alloc", "addr": 1000, "size": 512},
        *CUDA_MARK,
        {"action": "free_requested", "addr": 1000, "size": 512},
        {"action": "free_completed", "addr": 1000, "size": 512},
    ]

    assert read_history(trace, [7])[0] == [(1000, 512, ""), (-1, 7, ""), (1000, -512, "")]


def test_a_lost_mark_of_cuda_is_an_error() -> None:
    """Unknown phases would be reported as if they were known."""
    with pytest.raises(RankError, match="lacks 1 of its 2 marks"):
        read_history(CUDA_MARK, [0, 1])
