"""The sizes of the messages that communication cells send, and the total of a sweep over all of them."""

SIZES = tuple(4**power * 1024 for power in range(9))  # bytes, 1 KiB to 64 MiB
REPEATED_BYTES = 2**20  # per size and sweep: small messages are sent several times in a row
MOST_REPEATS = 8
ELEMENT_BYTES = 4  # fp32
PERIOD = 13  # of the messages' pattern: prime, so that no shard's boundary repeats it


def repeats(size: int) -> int:
    """How many times a message of that size is sent in a row, for one clock reading."""
    return min(MOST_REPEATS, max(1, REPEATED_BYTES // size))


SWEEP_BYTES = sum(size * repeats(size) for size in SIZES)


def label(size: int) -> str:
    """``65536`` → ``64KiB``."""
    return f"{size // 1024}KiB" if size < 2**20 else f"{size // 2**20}MiB"
