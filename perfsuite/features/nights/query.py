"""SQL over monthly files, by DuckDB. It reads nothing else, and writes nothing."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from rich.text import Text

from perfsuite.cli.report_options import files_of
from perfsuite.errors import UsageError
from perfsuite.features.nights.row import MONTH, NightRow, read_raw
from perfsuite.show.text.tables import bare_table, print_table

TABLE = "results"
FIXED = "date, cell, machine, device, kind, commit, outcome, status, accepted, note, red, trial, quarantined, versions"


def print_answer(sql: str, folder: Path) -> None:
    """Print the answer as a table. Raises UsageError without DuckDB, and for a folder without a monthly file."""
    if find_spec("duckdb") is None:
        raise UsageError('perfsuite results --query needs DuckDB: pip install "perfsuite[query]".')
    files = [path.absolute() for path in files_of(folder) if MONTH.fullmatch(path.name)] if folder.exists() else []
    if not files:
        what = "has no monthly file" if folder.exists() else "does not exist"
        raise UsageError(f"{folder} {what}: make one with perfsuite results {folder} --add REPORTS.")
    head, rows = _ask(sql, files)
    table = bare_table(*head)
    for row in rows:
        table.add_row(*(Text("" if value is None else _printable(str(value))) for value in row))
    print_table(table)


def _printable(text: str) -> str:
    """A stranger's text cannot command the terminal."""
    return "".join(one if one.isprintable() else "·" for one in text)


def _ask(sql: str, files: list[Path]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns and the rows of the answer. Raises UsageError for anything but one SELECT, and with DuckDB's own
    words; FileError for a bad line.
    """
    import duckdb

    with duckdb.connect() as connection:
        try:
            asked = [statement.type for statement in connection.extract_statements(sql)]
            if asked != [duckdb.StatementType.SELECT]:
                what = ", ".join(one.name for one in asked) or "empty"
                raise UsageError(f'The query is {what}: write one SELECT, e.g. "SELECT cell, date FROM {TABLE}".')
            for path in files:
                read_raw(path)  # a bad line is told with its file and number
            connection.execute(f"SET allowed_paths = [{', '.join(_quoted(str(path)) for path in files)}]")
            for setting in ("enable_external_access = false", "lock_configuration = true"):
                connection.execute(f"SET {setting}")
            connection.execute(_view(files))
            answer = connection.execute(sql)
            return [column[0] for column in answer.description or ()], answer.fetchall()
        except duckdb.Error as error:
            raise UsageError(f"DuckDB refuses the query: {str(error).strip()}") from error


def _view(files: list[Path]) -> str:
    """The table: a column for each metric, and fields that are left out of a line with their defaults."""
    names = ", ".join(_quoted(str(path)) for path in files)
    lines = (
        f"read_json([{names}], format='newline_delimited', union_by_name=true, sample_size=-1, timestampformat='none')"
    )
    fields = [field for field in msgspec.structs.fields(NightRow) if field.name not in ("metrics", "format")]
    empty = ", ".join(f"NULL::{_type(field)} AS {field.name}" for field in fields)
    filled = ", ".join(
        f"coalesce({field.name}, {_quoted(str(field.default))}) AS {field.name}"
        for field in fields
        if isinstance(field.default, str)
    )
    every = (
        f"SELECT {empty}, NULL AS metrics WHERE false UNION ALL BY NAME SELECT * EXCLUDE (date), date::VARCHAR AS date"
    )
    columns = f"* EXCLUDE (metrics) REPLACE ({filled}, date[:19]::TIMESTAMP AS date), metrics.*"
    return f"CREATE VIEW {TABLE} AS SELECT {columns} FROM ({every} FROM {lines})"


def _type(field: Any) -> str:
    """DuckDB's type of a row's field."""
    known = {"accepted": "BOOLEAN", "red": "VARCHAR[]", "trial": "VARCHAR[]"}
    return known.get(field.name, "VARCHAR")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
