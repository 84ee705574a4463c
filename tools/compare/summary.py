"""What the rows of a comparison say: medians, equal tokens, the best batches, the gates."""

import dataclasses
import statistics

MB = 1_000_000


@dataclasses.dataclass
class Cell:
    """A peer at a batch, over its rounds."""
    peer: str
    batch: int
    rounds: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    threads: int = 0
    seconds_median: float | None = None
    seconds_min: float | None = None
    prefill_s_median: float | None = None
    cpu_s_median: float | None = None  # of all threads while timed
    tokens_per_s: float | None = None
    tokens_per_s_best: float | None = None
    peak_mb: float | None = None  # the highest
    read_mb: float | None = None  # from disk, while timed
    equal_tokens: float | None = None  # share of the reference's
    first_difference: str = ""
    within_memory: bool | None = None
    caches: str = ""
    settings: str = ""
    versions: str = ""
    obstacle: str = ""  # why rounds are missing
    left_out: bool = False  # for being slow or over the memory limit: it could have run


def pairs(values):
    return ", ".join(f"{key} {value}" for key, value in values.items() if value not in ("", None))


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def compare_tokens(reference, ids):
    """(share of equal ids, place of the first difference or "")."""
    total, equal, first = 0, 0, ""
    for prompt, (want, got) in enumerate(zip(reference, ids, strict=True)):
        for at in range(max(len(want), len(got))):
            same = at < min(len(want), len(got)) and want[at] == got[at]
            total, equal = total + 1, equal + same
            if not same and not first:
                first = f"token {at + 1} of prompt {prompt + 1}"
    return (equal / total if total else None), first


def cells(rows, plan, left_out):
    """A Cell for each peer and batch that was to be measured, in the plan's order."""
    by_place = {}
    for row in rows:
        by_place.setdefault((row["batch"], row["peer"]), []).append(row)
    found = []
    for batch in plan.batches:
        reference = measured(by_place.get((batch, plan.reference.name), []))
        for peer in plan.peers:
            cell = Cell(peer.name, batch, 0, len(plan.prompts[0]), plan.new_tokens, plan.threads)
            here = by_place.get((batch, peer.name), [])
            fill(cell, measured(here), reference)
            if cell.rounds and plan.limit_bytes:
                cell.within_memory = within([row["peak_bytes"] for row in measured(here)],
                                            plan.limit_bytes, peer.is_ours)
            obstacles = [row["obstacle"] for row in here if "obstacle" in row]
            cell.obstacle = (obstacles or [left_out.get((peer.name, batch), "")])[0]
            cell.left_out = bool(cell.obstacle) and not obstacles
            found.append(cell)
    return found


def measured(rows):
    return [row for row in rows if "obstacle" not in row]


def within(peaks, limit_bytes, is_ours):
    """We must stay within the limit in each round, others in one: their peak moves by itself."""
    return (max if is_ours else min)(peaks) <= limit_bytes


def fill(cell, rows, reference):
    if not rows:
        return
    seconds, tokens = [row["seconds"] for row in rows], rows[0]["tokens"]
    cell.rounds = len(rows)
    cell.seconds_median, cell.seconds_min = statistics.median(seconds), min(seconds)
    cell.prefill_s_median = median(row["prefill_s"] for row in rows)
    cell.cpu_s_median = median(row.get("timed_cpu_s") for row in rows)
    cell.tokens_per_s = tokens / cell.seconds_median
    cell.tokens_per_s_best = tokens / cell.seconds_min
    cell.peak_mb = max(row["peak_bytes"] for row in rows) / MB
    cell.read_mb = median(row["read_bytes"] for row in rows) / MB
    last = rows[-1]
    cell.caches, cell.settings = last["caches"], pairs(last["settings"])
    cell.versions = pairs(last["versions"])
    if reference:
        cell.equal_tokens, cell.first_difference = compare_tokens(reference[0]["token_ids"],
                                                                  last["token_ids"])


def best_batches(all_cells):
    """{peer: its fastest Cell}, where there is a memory limit, within it."""
    best = {}
    for cell in all_cells:
        if cell.rounds == 0 or cell.within_memory is False:
            continue
        if cell.peer not in best or cell.tokens_per_s > best[cell.peer].tokens_per_s:
            best[cell.peer] = cell
    return best


@dataclasses.dataclass
class Gate:
    """How many times as fast as the best peer, with what share of its peak memory. The required
    peers must have been able to run: nothing holds against those that are left."""
    times: float
    memory_share: float
    at_each_batch: bool
    required: tuple = ()
    ours: str = "transload-fast"

    def check(self, all_cells):
        """[(whether it held, a line)], one a batch, or one for everybody's best batch."""
        if not self.at_each_batch:
            return [self.compare(all_cells, best_batches(all_cells).values(),
                                 "each at its best batch")]
        checks = []
        for batch in dict.fromkeys(cell.batch for cell in all_cells):
            here = [cell for cell in all_cells if cell.batch == batch]
            checks.append(self.compare(here, [cell for cell in here if cell.rounds],
                                       f"batch {batch}"))
        return checks

    def missing(self, cells):
        """Who of those that must run could not, and why; or ""."""
        for name in (self.ours, *self.required):
            here = [cell for cell in cells if cell.peer == name]
            if not here:
                return f"{name}: not among the peers"
            for cell in here:
                if cell.obstacle and not cell.left_out:
                    return f"{name}: {cell.obstacle}"
        return ""

    def compare(self, cells, measured_cells, where):
        missing = self.missing(cells)
        ours = next((cell for cell in measured_cells if cell.peer == self.ours), None)
        others = [cell for cell in measured_cells if not cell.peer.startswith("transload")]
        if missing or ours is None or not others:
            return False, f"{where}: not measured" + (f": {missing}" if missing else "")
        peer = max(others, key=lambda cell: cell.tokens_per_s)
        times, share = ours.tokens_per_s / peer.tokens_per_s, ours.peak_mb / peer.peak_mb
        held = times >= self.times and share <= self.memory_share
        return held, (f"{where}: {ours.peer} {ours.tokens_per_s:.2f} tokens/s "
                      f"(batch {ours.batch}), {peer.peer} {peer.tokens_per_s:.2f} "
                      f"(batch {peer.batch}): {times:.2f} times (asked {self.times:g}; "
                      f"{cpu_times(ours, peer)}), {share:.2f} of its peak memory "
                      f"(asked {self.memory_share:g}): "
                      f"{'held' if held else 'missed'}")


def cpu_times(ours, peer):
    """The same by seconds of processor, which other work on the machine disturbs less."""
    spent = [cell.cpu_s_median / (cell.tokens_per_s * cell.seconds_median)
             for cell in (ours, peer) if cell.cpu_s_median and cell.seconds_median]
    return f"{spent[1] / spent[0]:.2f} by CPU time" if len(spent) == 2 else "CPU time unknown"
