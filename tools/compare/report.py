"""Tables of a comparison: text, Markdown, CSV."""

import csv
import dataclasses
import io

import summary

HEADS = ("batch", "peer", "tokens/s", "best", "seconds", "prefill s", "CPU s", "peak MB",
         "read MB", "equal tokens", "rounds")
NUMERIC = {"batch", "tokens/s", "best", "seconds", "prefill s", "CPU s", "peak MB",
           "read MB", "equal tokens", "rounds"}


def number(value, digits):
    return "" if value is None else f"{value:.{digits}f}"


def share(cell):
    if cell.equal_tokens is None:
        return ""
    place = f" ({cell.first_difference})" if cell.first_difference else ""
    return f"{cell.equal_tokens:.1%}{place}"


def table_row(cell, mark):
    return [str(cell.batch), cell.peer + mark, number(cell.tokens_per_s, 2),
            number(cell.tokens_per_s_best, 2), number(cell.seconds_median, 2),
            number(cell.prefill_s_median, 2), number(cell.cpu_s_median, 2),
            number(cell.peak_mb, 0), number(cell.read_mb, 0),
            share(cell), str(cell.rounds or cell.obstacle)]


def rows(cells, limited):
    """limited: with a memory limit each peer's best batch within it is starred."""
    best = summary.best_batches(cells) if limited else {}
    return [table_row(cell, " *" if best.get(cell.peer) is cell else "") for cell in cells]


def text(cells, limited=False):
    lines = [list(HEADS), *rows(cells, limited)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADS) - 1)]
    out = []
    for line in lines:
        fields = [field.rjust(width) if head in NUMERIC else field.ljust(width)
                  for field, width, head in zip(line, widths, HEADS)]
        out.append("  ".join([*fields, line[-1]]).rstrip())
    return "\n".join(out)


def markdown(cells, limited=False):
    def line(fields):
        return "| " + " | ".join(field.replace("|", "\\|") for field in fields) + " |"
    rule = ["---:" if head in NUMERIC else "---" for head in HEADS]
    return "\n".join([line(HEADS), line(rule), *map(line, rows(cells, limited))])


def details(cells):
    """One line a peer: settings and versions, which every batch has alike but for a few."""
    last = {cell.peer: cell for cell in cells if cell.rounds}
    return [f"{cell.peer}: {cell.settings}; {cell.versions}"
            f"{'; page cache ' + cell.caches if cell.caches != 'kept' else ''}"
            for cell in last.values()]


def as_csv(cells):
    file = io.StringIO()
    names = [field.name for field in dataclasses.fields(summary.Cell)]
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    for cell in cells:
        writer.writerow({name: round(value, 6) if isinstance(value, float) else value
                         for name, value in dataclasses.asdict(cell).items()})
    return file.getvalue()


def notes(cells, plan, machine, model, text_name):
    """What a table needs to be read."""
    first = cells[0]
    lines = [f"{model}, {first.prompt_tokens} + {first.new_tokens} tokens ({text_name}), greedy, "
             f"{plan.threads} thread{'s' if plan.threads > 1 else ''}, {machine}",
             "tokens/s: new tokens by the median of prefill + decode, loading left out; peak: "
             "VmHWM of the whole process, loading included; CPU s: of all threads, and read: from "
             "disk, both while timed (transload: in its whole run)"]
    lines.append(f"equal tokens: with {plan.reference.name}, after a difference as well")
    if plan.limit_bytes:
        lines.append(f"memory limit {plan.limit_bytes / summary.MB:.0f} MB; "
                     "*: the peer's best batch within it")
    return lines
