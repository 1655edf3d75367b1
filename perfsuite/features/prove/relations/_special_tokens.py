"""Tokens with a meaning that a model's config gives them: padding, and the end of a text."""

from typing import Any, NamedTuple

FEWEST_PADDED = 4  # tokens in a row: so many padding tokens at its edge are no text


class Ends(NamedTuple):
    """Rows in which an end token follows the last label: all that were seen, those in which it does, and how many
    labels ask for one.
    """

    rows: int = 0
    follow: int = 0
    asked: int = 0

    def __add__(self, other: Any) -> "Ends":
        return Ends(*(mine + its for mine, its in zip(self, other, strict=True)))


def edges(torch: Any, ids: Any, padding: int | None) -> Any:
    """Padding tokens at the edges of rows, as a mask of the tokens' shape; None if no row has FEWEST_PADDED of them."""
    if padding is None:
        return None
    same = ids == padding
    left = same.long().cumprod(1).bool()
    right = same.flip(1).long().cumprod(1).bool().flip(1)
    found = (left | right) & ~same.all(1, keepdim=True)
    longest = torch.maximum((left & found).sum(1), (right & found).sum(1)).max()
    return found if int(longest) >= FEWEST_PADDED else None


def ends_of(torch: Any, ids: Any, mask: Any, asked: Any, end: int | list[int] | None) -> Ends:
    """``asked`` are the tokens that labels ask for, ``mask`` those that are no padding. Without one, an end token
    cannot be told from padding.
    """
    if end is None or mask is None:
        return Ends()
    is_end = torch.isin(ids, torch.tensor(end, device=ids.device))
    some = asked.any(1)
    after = ids.shape[1] - asked.flip(1).long().argmax(1)  # of the last one that is asked for
    there = some & (after < ids.shape[1])
    after = after.clamp(max=ids.shape[1] - 1)[:, None]
    follow = there & (is_end & mask).gather(1, after)[:, 0]
    return Ends(int(some.sum()), int(follow.sum()), int((asked & is_end).sum()))
