"""chart.py SUMMARY.json CHART.svg: tokens/s and peak memory a batch, a bar a peer.

Runs in the environment of the peers, which has matplotlib. The name's ending chooses the format."""

import json
import sys


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
    figure, panels = pyplot.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
    width = 0.8 / max(len(peers), 1)
    colours = pyplot.get_cmap("tab10" if len(peers) <= 10 else "tab20")
    for panel, (field, title) in zip(panels, (("tokens_per_s", "new tokens/s, median"),
                                              ("peak_mb", "peak memory, MB"))):
        for i, peer in enumerate(peers):
            here = [(b, by_place[peer, batch]) for b, batch in enumerate(batches)
                    if (peer, batch) in by_place]
            places = [b + (i - (len(peers) - 1) / 2) * width for b, _ in here]
            bars = panel.bar(places, [cell[field] for _, cell in here], width, label=peer,
                             color=colours(i))
            panel.bar_label(bars, fmt="{:.3g}", fontsize=7, rotation=90, padding=2)
        panel.set(title=title, xlabel="batch", xticks=range(len(batches)), xticklabels=batches)
        panel.margins(y=0.15)
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center",
                  ncols=min(len(peers), 5), frameon=False, fontsize=8)
    figure.suptitle(content["notes"][0], fontsize=9)
    figure.savefig(target, dpi=150)


if __name__ == "__main__":
    main()
