"""The story of a ladder as text: what each release changed."""

from rich.console import Console
from rich.markup import escape

from perfsuite.features.ladder.asv_site import summary
from perfsuite.features.ladder.story import CONFIRMED, UNCONFIRMED, WORSE, Story
from perfsuite.show.text.tables import bare_table, print_table


def print_story(story: Story, console: Console) -> None:
    """One sentence, one for each release, and a table of all changes."""
    console.print(f"[bold]{escape(summary(story))}[/bold]", soft_wrap=True)
    for release, text in story.sentences:
        console.print(f"{release}: {escape(text)}", soft_wrap=True)
    if story.ordered:
        table = bare_table("release", "what", "from → to", "by", "", "")
        table.columns[1].overflow = "fold"
        for change in story.ordered:
            colour = "red" if change.kind in WORSE else "green"
            status = "confirmed" if change.status == CONFIRMED else "[yellow]not confirmed[/yellow]"
            kind = f"[{colour}]{change.kind}[/{colour}]"
            what = escape(change.label) + (f"\n  [dim]{escape(change.why)}[/dim]" if change.why else "")
            table.add_row(change.since, what, change.move, change.by, kind, status)
        print_table(table)
    if story.small:
        console.print(f"[dim]{len(story.small)} differ by less than matters: see the page.[/dim]")
    for change in story.with_status(UNCONFIRMED):
        text = f"not confirmed by new runs: {change.label} at {change.since}, {change.move}"
        console.print(f"[dim]{escape(text)}[/dim]", soft_wrap=True)
    if story.about_dates:
        console.print(escape(story.about_dates), soft_wrap=True)
