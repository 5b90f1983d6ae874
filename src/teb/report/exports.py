"""A study's table for other programs: LaTeX for papers, CSV with one line per run for everything else."""

from __future__ import annotations

import csv
import io

from teb.report.grid import Study, notes, table_cells

_LATEX = {"±": r"$\pm$", "†": r"$\dagger$", "%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#"}


def latex_table(study: Study) -> str:
    """A booktabs table with the notes below it; it needs the package booktabs and nothing else."""
    header, rows = table_cells(study)
    lines = [" & ".join(map(_escaped, cells)) + r" \\" for cells in rows]
    below = [rf"\footnotesize {_escaped(note)}\par" for note in notes(study)]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"\toprule",
            " & ".join(map(_escaped, header)) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            "",
            *below,
            "",
        ]
    )


def csv_table(study: Study) -> str:
    """One line per run that stands in the table: method, env, seed, env_steps, value, config_hash, commit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "env", "seed", "env_steps", study.measure.series, "config_hash", "commit"])
    for row in study.all_rows:
        for env in study.envs:
            cell = study.cell(row, env)
            for record, value in zip(cell.records, cell.values, strict=True):
                steps = study.steps[env][0]
                writer.writerow(
                    [row, env, record.seed, steps, repr(value), record.config_hash, record.commit]
                )
    return text.getvalue()


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)
