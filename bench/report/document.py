"""The page around the charts: one file, nothing loaded from anywhere."""

import collections
import html
import statistics

import charts

CSS = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 16px; color: #1a1a1a; background: #fff;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 8px; }
h2 { font-size: 1.25rem; margin: 36px 0 8px; border-bottom: 2px solid #1a1a1a; }
h3 { font-size: 1rem; margin: 0 0 2px; }
p { margin: 0 0 10px; max-width: 46rem; }
.small, small { color: #444; font-size: 0.875rem; }
.cards { display: grid; gap: 22px 26px; grid-template-columns: repeat(auto-fill, minmax(min(100%, 340px), 1fr)); }
.card svg { display: block; width: 100%; height: auto; max-width: 460px; font-family: inherit; }
.wide { overflow-x: auto; }
code { overflow-wrap: anywhere; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 10px 4px 0; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd; }
td.n, th.n { text-align: right; white-space: nowrap; }
.verdict { display: inline-block; padding: 0 8px; border-radius: 4px; font-weight: 600; white-space: nowrap;
  border: 2px solid; }
.holds { color: #fff; background: #00664b; border-color: #00664b; }
.part { color: #00664b; border-color: #00664b; }
.not { color: #fff; background: #a83c00; border-color: #a83c00; }
.cannot, .open { color: #444; border-color: #999; font-weight: 400; }
.claim { border-bottom: 1px solid #ddd; padding: 10px 0; }
.claim p { margin: 2px 0; max-width: none; }
.claim ul { margin: 2px 0; padding-left: 1.2rem; font-size: 0.875rem; }
.warn { border-left: 4px solid #a83c00; padding-left: 10px; }
summary { cursor: pointer; }
"""

CLASSES = {"holds": "holds", "holds in part": "part", "does not hold": "not",
           "cannot be tested here": "cannot", "open": "open"}
PLURALS = {"holds": "hold", "holds in part": "hold in part", "does not hold": "do not hold",
           "cannot be tested here": "cannot be tested here", "open": "are open"}

say = html.escape


def group(rows, key):
    """Key -> rows, in the order of the rows."""
    found = collections.OrderedDict()
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def card(title, chart, note=""):
    small = f'<p class="small">{say(note)}</p>' if note else ""
    return f'<section class="card"><h3>{say(title)}</h3>{chart}{small}</section>'


def cards(title, intro, items):
    if not items:
        return ""
    return f'<h2>{say(title)}</h2><p>{say(intro)}</p><div class="cards">{"".join(items)}</div>'


# What must be alike for rows to stand in one chart, beside phase and threads, and how it is said.
# Where it means nothing to a row it is None.
PLAN = {
    "records": "{:,} records".format,
    "keys": "{} keys".format,
    "distribution": str,
    "store": lambda store: "as stores" if store else "as indexes",
    "value_bytes": "values of {} bytes".format,
    "pages": {"small": "4 KiB pages", "huge": "2 MiB pages", "own": "pages as each takes them"}.get,
    "room": lambda room: f"room of {room / 2**20:,.0f} MiB before",
    "batch": "{} at once".format,
    "scan_length": "scans of {}".format,
}


def plan_of(row):
    plan = {name: row.get(name) for name in PLAN}
    store = plan["store"] is True
    if not store:
        plan["value_bytes"] = None
    if plan["room"] == 0:
        plan["room"] = None
    if plan["batch"] == 1 or (store and not row["phase"].startswith("batch")):
        plan["batch"] = None
    if "scan" not in row["phase"] and "ycsb-e" not in row["phase"]:
        plan["scan_length"] = None
    return plan


def setting(row):
    return (*plan_of(row).values(), row["phase"], row["threads"])


def say_plan(row, names):
    plan = plan_of(row)
    said = [PLAN[name](plan[name]) for name in names if plan[name] is not None]
    return [text for text in said if text]


def varying(rows):
    """What differs between charts; what is alike in all of them stands once, above."""
    return [name for name in PLAN if len({plan_of(row)[name] for row in rows}) > 1]


def title_of(own, names, *what):
    return ", ".join([*what, *say_plan(own[0], names)])


def threads_of(row):
    return f"{row['threads']} thread{'s' * (row['threads'] > 1)}"


def shared_setting(rows):
    """A sentence, or nothing if there is nothing alike."""
    if not rows:
        return ""
    names = varying(rows)
    said = say_plan(rows[0], [name for name in PLAN if name not in names])
    return f"{', '.join(said)}. " if said else ""


def tell_apart(rows):
    """Of an index that stands twice in a chart: where the two differ, or which one it is."""
    rows = [dict(row) for row in rows]
    for own in group(rows, lambda row: (setting(row), row["index"])).values():
        if len(own) == 1:
            continue
        names = [name for name in ("domain", "epoch_ns", "seed") if len({row.get(name) for row in own}) > 1]
        said = [", ".join(f"{row[name] / 1e6:g} ms epochs" if name == "epoch_ns" and row.get(name)
                          else f"{name.replace('_ns', '')} {row.get(name)}" for name in names) for row in own]
        again = len(set(said)) < len(own)
        for number, (row, text) in enumerate(zip(own, said), 1):
            parts = [part for part in (text, f"run {number}" if again else "") if part]
            row["index"] += f" ({', '.join(parts)})"
    return rows


def winner(rows):
    """A sentence, with what the best one gives up."""
    best = max(rows, key=lambda row: row["mops"])
    text = f"Best: {best['index']}, which survives {best['survives']}."
    close = [row["index"] for row in rows if row is not best and row["mops_max"] >= best["mops_min"]]
    if close:
        text += f" Its range overlaps with that of {', '.join(close)}."
    durable = [row for row in rows if row["survives"].startswith("power loss")]
    if durable and best not in durable:
        other = max(durable, key=lambda row: row["mops"])
        text += (f" Best that survives {other['survives']}: {other['index']}, "
                 f"{other['mops'] / best['mops']:.0%} of it.")
    return text


def throughput(rows):
    made = []
    names = varying(rows)
    for own in group(rows, setting).values():
        worst = min(row["cpu_share"] for row in own)
        note = winner(own)
        if worst < 0.98 and own[0]["domain"] != "disk":
            note += f" Not quiet: at worst {worst:.0%} of the processor."
        title = title_of(own, names, own[0]["phase"], threads_of(own[0]))
        made.append(card(title, charts.bars(own, "throughput, " + title), note))
    return cards("Throughput", shared_setting(rows) + "Bars are medians, black lines go from the least to the most of the rounds; "
                 "blue: trees of Everleaf, orange: others. Longer is better.", made)


def latency(rows, styles):
    names = varying(rows)
    made = []
    for own in group(rows, setting).values():
        title = title_of(own, names, own[0]["phase"], threads_of(own[0]))
        made.append(card(title, charts.latency(own, styles, "latency, " + title)))
    return cards("Latency", "Time of one operation by itself, the clock's included. Lower is better. A point "
                 "is drawn if enough operations were timed for it.", made)


def scaling(rows, styles):
    made = []
    names = varying(rows)
    for own in group(rows, lambda row: setting(row)[:-1]).values():
        if len({row["threads"] for row in own}) > 1:
            title = title_of(own, names, own[0]["phase"])
            made.append(card(title, charts.scaling(own, styles, "scaling, " + title)))
    return cards("Threads", "Throughput over the number of threads.", made)


SPACE = ("records", "keys", "distribution", "store", "value_bytes", "pages")


def space(rows):
    made = []
    names = [name for name in varying(rows) if name in SPACE]
    for own in group(rows, lambda row: tuple(plan_of(row)[name] for name in SPACE)).values():
        phase = own[0]["phase"]
        once = {row["index"]: row for row in own if row["phase"] == phase}
        indexes = list(once)
        pool = [once[name]["pool_bytes_per_key"] for name in indexes]
        dram = [once[name].get("dram_bytes_per_key") or 0 for name in indexes]
        title = title_of(own, names, f"after {phase}")
        parts = (("file", charts.OURS, pool), ("DRAM", "#E69F00", dram))
        hidden = [name for name in indexes if once[name].get("dram_bytes_per_key") is None]
        note = f"DRAM not measured: {', '.join(hidden)}." if hidden else ""
        made.append(card(title, charts.stacked(indexes, parts, "bytes a key", "space, " + title), note))
    return cards("Space", "Bytes for each record: in the file (of Everleaf's trees what is allocated in it, of others "
                 "all of it) and in DRAM. Shorter is better.", made)


# As PLAN, of recoveries and of the model.
RECOVERED = {"keys": "{} keys".format, "domain": "domain {}".format, "pages": PLAN["pages"]}
MODELLED = {"machine": "machine {}".format, "flush": "flush {}".format, "records": "{:,} records".format,
            "ops": "{:,} operations".format, "cache_bytes": "{:,} bytes of cache".format,
            "epoch_ops": "epochs of {:,} operations".format}


def apart(rows, plan, *names):
    """(rows that were measured alike, what of it is not alike in all of them). `names`: fields that a
    title says anyway."""
    differing = [name for name in plan if len({row.get(name) for row in rows}) > 1]
    for own in group(rows, lambda row: tuple(row.get(name) for name in (*names, *plan))).values():
        yield own, [plan[name](own[0][name]) for name in differing if own[0].get(name) is not None]


def numbered(rows):
    """Names of indexes; of one that stands twice, which one it is."""
    names = [row["index"] for row in rows]
    return [f"{name} (run {names[:i + 1].count(name)})" if names.count(name) > 1 else name
            for i, name in enumerate(names)]


def traffic(results):
    made = []
    for own, differing in apart(results.traffic, MODELLED, "workload"):
        workload, ops = ", ".join([own[0]["workload"], *differing]), own[0]["ops"]
        names = numbered(own)
        for title, read, written in (("lines to the memory controller", "read_mib", "written_mib"),
                                     ("media", "media_read_mib", "media_written_mib")):
            parts = tuple((name, color, [row[field] / ops * 1e6 for row in own])
                          for name, color, field in (("read", charts.OURS, read),
                                                     ("written", "#E69F00", written)))
            made.append(card(f"{workload}: {title}",
                             charts.stacked(names, parts, "MiB per million operations",
                                            f"traffic, {workload}, {title}")))
    return cards("Traffic of the model of caches and medium", "Modelled, not measured on a device. Shorter is "
                 "better.", made)


def counts(rows):
    """Flushes, fences and words of an operation: of strict trees exact, whatever the machine."""
    own = [row for row in rows if row["flushes_per_op"] is not None and row["fences_per_op"] is not None
           and row["words_per_op"] is not None and row["threads"] == 1 and row["flushes_per_op"] + row["words_per_op"] > 0]
    if not own:
        return ""
    differing = varying(own)
    lines = "".join(
        f"<tr><td>{say(title_of([row], differing, row['phase']))}</td><td>{say(row['index'])}</td>"
        + "".join(f'<td class="n">{row[name]:.2f}</td>'
                  for name in ("flushes_per_op", "fences_per_op", "words_per_op")) + "</tr>" for row in own)
    return ('<h2>Persistence</h2><p>For one operation. Fewer is better. Those of strict trees do not '
            'depend on the machine; of buffered ones they do: their epochs end by the clock.</p>'
            '<div class="wide"><table><tr><th>phase</th><th>index</th><th class="n">flushes</th>'
            f'<th class="n">fences</th><th class="n">words</th></tr>{lines}</table></div>')


def recovery(results):
    made = []
    for own, differing in apart(results.recovery, RECOVERED, "records", "threads"):
        records, threads = own[0]["records"], own[0]["threads"]
        names = numbered(own)
        parts = tuple((title, color, [statistics.median(one[field] for one in row["opened"]) / 1e6
                                      for row in own])
                      for title, color, field in (("pool", charts.OURS, "open_ns"),
                                                  ("index", "#E69F00", "index_ns")))
        title = ", ".join([f"{records:,} records, {threads} writer{'s' * (threads > 1)} killed", *differing])
        made.append(card(title, charts.stacked(names, parts, "milliseconds, median", "recovery, " + title)))
    return cards("Opening after a crash", "From the first system call until the index can be used. Shorter is "
                 "better.", made)


def claim(result):
    mark = {True: "holds", False: "does not hold", None: "not decided"}
    parts = "".join(f"<li>{say(part['what'])}: <b>{say(part['text'])}</b>; paper {say(part['paper'])}; asked "
                    f"for: {say(part['rule'])}; {mark.get(part.get('holds'), 'not decided')}</li>"
                    for part in result["checks"])
    parts += "".join(f"<li>{say(str(what))}: <b>{say(str(text))}</b></li>"
                     for what, text in result.get("figures", []))
    parts = f"<ul>{parts}</ul>" if parts else ""
    if len(result["checks"]) > 6:
        parts = f"<details><summary>{len(result['checks'])} parts</summary>{parts}</details>"
    scale = f" Scale {result['scale']:g}." if isinstance(result.get("scale"), (int, float)) else ""
    return (f'<div class="claim"><p><span class="verdict {CLASSES.get(result["verdict"], "open")}">'
            f'{say(result["verdict"])}</span> <b>{say(result["id"])}</b> {say(result["paper"])}</p>'
            f'{parts}<p class="small">{say(result["sentence"])}.{scale}</p></div>')


def claims(results):
    if not results.claims:
        return ""
    found = collections.Counter(result["verdict"] for result in results.claims)
    total = ", ".join(f"{found[word]} {words if found[word] > 1 else word}"
                      for word, words in PLURALS.items() if found[word])
    body = "".join(claim(result) for result in results.claims)
    return (f"<h2>What the papers claim</h2><p><b>{len(results.claims)} claims: {say(total)}.</b> Those that "
            "have parts were run with the same kind of work, scaled, and judged by the rules that stand beside the "
            "figures.</p>" + body)


def bytes_a_key(row):
    """Allocated (a map has none there), in the file, and in DRAM."""
    shown = (row["pool_bytes_per_key"] or None, row.get("file_bytes_per_key"), row.get("dram_bytes_per_key"))
    return ["-" if value is None else f"{value:.1f}" for value in shown]


def everything(rows):
    head = ("phase", "threads", "index", "of", "Mops", "least", "most", "p50 ns", "p99 ns", "p99.9 ns", "flushes",
            "fences", "allocated, bytes a key", "file, bytes a key", "DRAM, bytes a key", "domain", "survives")
    lines = []
    names = varying(rows)
    for row in rows:
        cells = [row["phase"], row["threads"], row["index"], ", ".join(say_plan(row, names)) or "-",
                 *(charts.short(row[name]) for name in ("mops", "mops_min", "mops_max")), row["p50_ns"],
                 row["p99_ns"], row["p999_ns"],
                 *("-" if row[name] is None else f"{row[name]:.2f}"
                   for name in ("flushes_per_op", "fences_per_op")),
                 *bytes_a_key(row),
                 row.get("domain", "-"), row["survives"]]
        lines.append("<tr>" + "".join(f"<td>{say(str(cell))}</td>" for cell in cells) + "</tr>")
    if not lines:
        return ""
    titles = "".join(f"<th>{say(title)}</th>" for title in head)
    return (f'<h2>All rows</h2><details><summary>{len(lines)} rows</summary><div class="wide"><table><tr>'
            f'{titles}</tr>{"".join(lines)}</table></div></details>')


def machine(results):
    lines = []
    for found in results.machines:
        facts = [f"{found.get('cpu', 'unknown processor')}", f"{found.get('cores', '?')} cores",
                 f"Linux {found.get('kernel', '?')}", f"flush by {found.get('flush_instruction', '?')}"]
        lines.append(f'<p class="small">{say(", ".join(facts))}</p>')
        if found.get("optimized") is False:
            lines.append('<p class="warn">Assertions were on: these are not the speeds of a release.</p>')
    if results.interrupted:
        lines.append('<p class="warn">The run was interrupted: this is what was measured until then.</p>')
    return "".join(dict.fromkeys(lines))


def runs(results):
    """When, by which version, and what was typed."""
    lines = []
    for date, version, command in dict.fromkeys(results.runs):
        facts = ", ".join(part for part in (date, f"Everleaf {version}" if version else "") if part)
        code = f"<code>{say(command)}</code>" if command else ""
        lines.append(f'<p class="small">{": ".join(part for part in (say(facts), code) if part)}</p>')
    return "".join(lines)


def page(results):
    rows = tell_apart(results.rows)
    styles = charts.style(list(dict.fromkeys(row["index"] for row in rows)))
    body = "".join((machine(results), runs(results), throughput(rows), latency(rows, styles), scaling(rows, styles),
                    counts(rows), traffic(results), space(rows), recovery(results), claims(results),
                    everything(rows)))
    return ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            'content="width=device-width, initial-scale=1"><title>Everleaf: results</title>'
            f"<style>{CSS}</style></head><body><h1>Everleaf: results</h1>{body}</body></html>\n")
