"""The page of `perfsuite upgrade`."""

from ab_samples import page_of
from upgrade_pages import upgraded


def test_an_upgrade_names_the_cause_of_each_effect():
    """What gets worse is open, what gets better is folded, and the commands are where they belong."""
    document = upgraded()

    assert document.verdict == "1 effect in 2 cells got worse, 1 got better."
    assert [one.folded for one in document.sections] == [False, True, True]
    assert [[command.text for command in one.commands] for one in document.sections[:2]] == [["perfsuite ab …"], []]
    assert 'Caused by lib <span class="whole">1 -&gt; 2</span> (alone).' in page_of(document)
