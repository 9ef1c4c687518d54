"""Charts as SVG text. Colours are Okabe's and Ito's, which people with any sight tell apart; marks and
lines differ, too. Figures are as wide as a phone's screen, so that labels stay legible there."""

import io
import re

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

OURS, RIVAL = "#0072B2", "#D55E00"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#767676")
MARKERS = "osD^vP*X"
LINES = ("-", "--", "-.", ":")
WIDTH = 4.6  # inches
QUANTILES = (("p50_ns", 0.5, "50"), ("p90_ns", 0.9, "90"), ("p99_ns", 0.99, "99"),
             ("p999_ns", 0.999, "99.9"), ("p9999_ns", 0.9999, "99.99"), ("p99999_ns", 0.99999, "99.999"))

plt.rcParams.update({
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 11, "axes.spines.top": False,
    "axes.spines.right": False, "axes.axisbelow": True, "axes.grid": True, "grid.color": "#dddddd",
    "figure.facecolor": "none", "axes.facecolor": "none"})

drawn = 0


def svg(figure, label):
    """Inline SVG; its ids are unlike those of any other chart in the page."""
    global drawn
    drawn += 1
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", pad_inches=0.04,
                   metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    plt.close(figure)
    text = out.getvalue()
    text = text[text.index("<svg"):]
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>c{drawn}-", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    label = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def style(names):
    """Name -> colour, mark and line, the same in all charts."""
    return {name: {"color": PALETTE[i % len(PALETTE)], "marker": MARKERS[i % len(MARKERS)],
                   "linestyle": LINES[i // len(PALETTE) % len(LINES)]} for i, name in enumerate(names)}


def short(number):
    """About three digits."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def name_bar(axes, y, text, weight):
    """Above the bar, where it has room whatever the bar's length."""
    axes.annotate(text, (0, y + 0.21), (2, 2), textcoords="offset points", va="bottom", ha="left",
                  fontweight=weight)


def bars(rows, label):
    """Throughput: the best one is dark and says so. Whiskers: least and most of the rounds."""
    rows = sorted(rows, key=lambda row: row["mops"])
    best = rows[-1]["mops"]
    figure, axes = plt.subplots(figsize=(WIDTH, 0.62 + 0.62 * len(rows)))
    for y, row in enumerate(rows):
        first = row["mops"] == best
        color = OURS if row["flushes_per_op"] is not None else RIVAL
        axes.barh(y, row["mops"], height=0.42, color=color, alpha=1 if first else 0.45)
        axes.plot((row["mops_min"], row["mops_max"]), (y, y), color="black", linewidth=1.4, marker="|",
                  markersize=7)
        weight = "bold" if first else "normal"
        share = "best" if first else f"{row['mops'] / best:.0%} of the best"
        name_bar(axes, y, f"{row['index']}: {short(row['mops'])}, {share}", weight)
    axes.set_ylim(-0.4, len(rows) - 0.3)
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(left=0)
    axes.set_xlabel("million operations a second")
    return svg(figure, label)


def legend(axes, count):
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), ncol=2, frameon=False,
                fontsize=10, handlelength=2.6, columnspacing=1.0)


def latency(rows, styles, label):
    """A point needs as many samples as it has nines; what was not seen is not drawn."""
    figure, axes = plt.subplots(figsize=(WIDTH, 2.9))
    ticks = set()
    for row in rows:
        points = [(i, row[name]) for i, (name, fraction, _) in enumerate(QUANTILES)
                  if row["latency_samples"] * (1 - fraction) >= 0.999]
        ticks |= {i for i, _ in points}
        axes.plot(*zip(*points), label=row["index"], markersize=5, **styles[row["index"]])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: short(value / 1000))
    axes.yaxis.set_minor_formatter(lambda value, _: "")
    axes.set_xticks(sorted(ticks), [QUANTILES[i][2] for i in sorted(ticks)])
    axes.set_xlabel("percent of operations that take at most")
    axes.set_ylabel("microseconds")
    legend(axes, len(rows))
    return svg(figure, label)


def scaling(rows, styles, label):
    """Throughput over threads, with what each would have if threads cost nothing."""
    figure, axes = plt.subplots(figsize=(WIDTH, 2.7))
    for name in dict.fromkeys(row["index"] for row in rows):
        own = sorted((row for row in rows if row["index"] == name), key=lambda row: row["threads"])
        if len(own) < 2:
            continue
        threads = [row["threads"] for row in own]
        middle = [row["mops"] for row in own]
        spread = [[row["mops"] - row["mops_min"] for row in own],
                  [row["mops_max"] - row["mops"] for row in own]]
        axes.errorbar(threads, middle, yerr=spread, capsize=3, label=name, markersize=5, **styles[name])
        axes.plot(threads, [middle[0] * count / threads[0] for count in threads], color="#999999",
                  linewidth=0.8, linestyle=":")
    axes.set_xticks(sorted({row["threads"] for row in rows}))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("threads (dotted: in proportion)")
    axes.set_ylabel("Mops a second")
    legend(axes, len(rows))
    return svg(figure, label)


def stacked(names, parts, unit, label):
    """Rows of values laid end to end. `parts`: (title, colour, values)."""
    figure, axes = plt.subplots(figsize=(WIDTH, 0.9 + 0.6 * len(names)))
    totals = [sum(values) for values in zip(*(values for _, _, values in parts))]
    order = sorted(range(len(names)), key=lambda i: -totals[i])
    for y, i in enumerate(order):
        left = 0
        for title, color, values in parts:
            axes.barh(y, values[i], left=left, height=0.42, color=color, label=title if y == 0 else None)
            left += values[i]
        first = totals[i] == min(totals)
        note = ", least" if first and len(names) > 1 else ""
        name_bar(axes, y, f"{names[i]}: {short(totals[i])}{note}", "bold" if first else "normal")
    axes.set_ylim(-0.4, len(names) - 0.3)
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(left=0)
    axes.set_xlabel(unit)
    if len(parts) > 1:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.28 / (0.3 + 0.2 * len(names))), ncol=2,
                    frameon=False, fontsize=10)
    return svg(figure, label)
