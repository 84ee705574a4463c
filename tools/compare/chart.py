"""chart.py SUMMARY.json CHART.svg: tokens/s, peak memory and bytes read a batch, a bar a peer.

Runs in the environment of the peers, which has matplotlib. The name's ending chooses the format."""

import json
import sys

PANELS = (("tokens_per_s", "new tokens/s, median", "{:.3g}"),
          ("peak_mb", "peak memory, MB", "{:.0f}"),
          ("read_mb", "read from disk while timed, MB", "{:.0f}"))


def label(cell):
    """The peer, which names its settings, and its version."""
    return f"{cell['peer']} ({cell['versions'].split(',')[0]})"


def main():
    source, target = sys.argv[1:]
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    with open(source, encoding="utf-8") as file:
        content = json.load(file)
    cells = [cell for cell in content["cells"] if cell["rounds"]]
    peers = list(dict.fromkeys(cell["peer"] for cell in cells))
    batches = list(dict.fromkeys(cell["batch"] for cell in cells))
    by_place = {(cell["peer"], cell["batch"]): cell for cell in cells}
    figure, panels = pyplot.subplots(1, len(PANELS), figsize=(15, 5), layout="constrained")
    width = 0.8 / max(len(peers), 1)
    colours = pyplot.get_cmap("tab10" if len(peers) <= 10 else "tab20")
    for panel, (field, title, form) in zip(panels, PANELS):
        for i, peer in enumerate(peers):
            here = [(b, by_place[peer, batch]) for b, batch in enumerate(batches)
                    if (peer, batch) in by_place]
            places = [b + (i - (len(peers) - 1) / 2) * width for b, _ in here]
            bars = panel.bar(places, [cell[field] for _, cell in here], width,
                             label=label(here[0][1]), color=colours(i))
            panel.bar_label(bars, fmt=form, fontsize=7, rotation=90, padding=2)
        panel.set(title=title, xlabel="batch", xticks=range(len(batches)), xticklabels=batches)
        panel.margins(y=0.15)
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center",
                  ncols=min(len(peers), 5), frameon=False, fontsize=8)
    figure.suptitle("\n".join([content["notes"][0], *content["verdict"]]), fontsize=9)
    figure.savefig(target, dpi=150)


if __name__ == "__main__":
    main()
