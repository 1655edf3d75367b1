"""causal: a model that is asked for the next token sees no later one. Packed neighbours do not see each other, and what
an attention mask hides changes nothing.

The probe calls the model again with other tokens, without gradients and with the same random numbers, and compares what
it gives for the tokens that must not know.
"""

from perfsuite.features.prove.relation import CannotTry, Judged, Relation, Remark, Seen, by_own_run, typed
from perfsuite.features.prove.relations._causal_probe import DECODED, PADDING, PROBE, CausalFacts

FEWEST_ENDS = 4
SHARE = 0.9  # of the rows that labels ask for


def _judge(seen: Seen) -> Judged:
    facts = typed(seen, CausalFacts)
    first = next((rank for rank in facts if rank.shift >= 0), facts[0])
    future, other = (DECODED, "future") if first.decodes else ("future", DECODED)
    exchanges = [one for one in first.exchanges if one.kind != other]
    sees_all = any(one.kind == future and one.moved > one.allowed for one in exchanges)
    wrong = [
        Remark(
            what="future" if exchange.kind == future else exchange.kind,
            subject=exchange.module,
            number=exchange.moved,
            expected=exchange.allowed,
            line=first.model_line,
        )
        for exchange in exchanges
        if exchange.moved > exchange.allowed
    ]
    if first.shift < 0 or (not first.shift and sees_all):  # an autoencoder is asked for what it was given
        if found := [*_about_labels(first), *(one for one in wrong if one.what in PADDING)]:
            return RELATION.broken(found)
        raise CannotTry(Remark(what="other"))
    if first.shift != 1:
        return RELATION.broken([Remark(what="unshifted" if not first.shift else "twice", line=first.loss_line)])
    if not exchanges:
        raise CannotTry(Remark(what="uncalled" if first.failed else "short", subject=first.failed))
    wrong += _about_labels(first)
    if first.ends_follow >= max(FEWEST_ENDS, SHARE * first.rows) and not first.ends_asked:
        about = {"number": first.ends_follow, "expected": float(first.rows)}
        wrong.append(Remark(what="endless", line=first.loss_line, **about))  # type: ignore[arg-type]
    tried = {exchange.kind for exchange in exchanges}
    aside = [] if "neighbours" in tried else [Remark(what="no_neighbours")]
    aside += [] if tried.intersection(PADDING) else [Remark(what="no_padding")]
    return RELATION.broken(wrong, aside, Remark(what="held"))


def _about_labels(first: CausalFacts) -> list[Remark]:
    counts = (("given", first.given_labels), ("padded", first.padded_labels), ("asked", first.padding_labels))
    line = first.loss_line or first.model_line
    return [
        Remark(what=what, number=count, expected=float(first.labels), line=line) for what, count in counts if count
    ][:1]


RELATION = Relation(
    name="causal",
    order=60,
    asks="A model that is asked for the next token sees no later one, no packed neighbour and no padding.",
    probe=PROBE,
    says={
        "held": "later tokens change nothing of what the model gives for earlier ones",
        "other": "no loss was seen that asks for the next token of the model's input",
        "short": "rows have fewer than 4 tokens: let the script train on longer ones",
        "uncalled": "the model cannot be called a second time: {subject}",
        "unshifted": "the loss asks for a token that the model was just given: are the labels shifted by one, to the "
        "left?",
        "twice": "the loss asks for the token after the next: the labels are shifted by two. A model of transformers "
        "shifts them itself",
        "future": "later tokens change what the model gives for earlier ones, by {number} of its norm (rounding "
        "explains {expected}). It begins in {subject}: is its attention masked?",
        "neighbours": "a document changes what the model gives for its neighbour in the same row, by {number} of its "
        "norm (rounding explains {expected}). It begins in {subject}",
        "padding": "tokens that attention_mask hides change what the model gives for others, by {number} of its norm "
        "(rounding explains {expected}). It begins in {subject}",
        "unhidden": "padding at the edges of rows changes what the model gives for other tokens, by {number} of its "
        "norm (rounding explains {expected}). It begins in {subject}: no attention_mask hides it",
        "asked": "{number} labels ask for padding at the edges of rows: set them to -100",
        "endless": "no label asks for the end token, which follows the last label in {number} of {expected} rows: is "
        "it taken for padding?",
        "padded": "{number} of {expected} labels are of tokens that attention_mask hides: set them to -100",
        "given": "{number} of {expected} labels ask for a token that the model was given in its place: set those that "
        "are not masked to -100",
        "no_neighbours": "whether packed neighbours see each other was not tried: no input of the model says "
        "where documents begin",
        "no_padding": "whether padding changes anything was not tried: no attention_mask hides a token",
    },
    prove=by_own_run(_judge),
)
