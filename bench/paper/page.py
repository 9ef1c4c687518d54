"""Results as a page of docs/."""

import collections

import judge

INTRO = """# What the papers claim, and what holds here
Written by `everleaf paper ... --json FILE --page docs/reproduction.md`, not by hand. A claim is run with the same
kind of work, scaled; the rules by which it is judged are in [bench/paper/](../bench/paper/README.md) and stand in
the tables. No claim was tuned for. What ran:
```
{commands}
```
"""


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def counts(results):
    found = collections.Counter(result["verdict"] for result in results)
    return ", ".join(f"{found[word]} {words if found[word] > 1 else word}"
                     for word, words in judge.PLURALS.items() if found[word])


def say_machine(machine):
    return f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, flush by " \
           f"{machine['flush_instruction']}"


def where(ran):
    """Each machine; of more than one, with the claims that ran there."""
    found = {}
    for result in ran:
        what = say_machine(result["machine"]) if result["machine"] else "a machine that was not asked for"
        found.setdefault(what, []).append(result["id"])
    if len(found) == 1:
        return [f"- Machine: {next(iter(found))}."]
    return [f"- Machine: {what}. There: {', '.join(ids)}." for what, ids in found.items()]


def of_commits(ran):
    """The checkout, which the programs should be built from."""
    commits = sorted({result.get("commit") for result in ran} - {None, ""})
    return f"Checkout at {', '.join(commits)}. " if commits else ""


def how_quiet(shares):
    if not shares:
        return ""
    quiet = sum(share >= 0.98 for share in shares)
    return f"In {quiet} of {len(shares)} claims the threads had at least 98 % of their processors, at worst " \
           f"{100 * shares[0]:.0f} %; "


def machine_lines(results):
    """Where, when, how quiet."""
    ran = [result for result in results if result["invocation"]]
    if not ran:
        return []
    dates = sorted({result["date"] for result in ran})
    shares = sorted(result["cpu_share"] for result in ran if result["cpu_share"] is not None)
    loads = [result["load_average"] for result in ran]
    scales = sorted({result["scale"] for result in ran})
    timed = [result["rounds"] for result in ran if result["rounds"]] or [1]
    rounds = sorted({min(timed), max(timed)})
    tiny = (" **So little lies in the caches: this shows that the command works, and no more.**"
            if scales[0] < 0.01 else "")
    return [
        *where(ran),
        "- Pools on tmpfs or DRAM, no persistent memory: fences and flushes are executed, the medium behind them "
        "is DRAM.",
        f"- Date: {' to '.join(sorted({dates[0], dates[-1]}))}. {of_commits(ran)}Scale: "
        f"{', '.join(f'{scale:g}' for scale in scales)} of the papers' records "
        f"(`--scale`), {' to '.join(map(str, rounds))} rounds; {sum(result['seconds'] for result in ran) / 60:.0f} "
        f"minutes in all.{tiny}",
        f"- Noise: load average before a claim {min(loads):.1f} to {max(loads):.1f}. {how_quiet(shares)}"
        f"{sum(result['repeated'] for result in ran)} runs that had less than 70 % "
        "were made again, whatever they had measured. Throughput of one thread is that of processor time: what "
        "other programs took of the processors is not counted. A part of a claim whose rounds lie on both sides of its rule is "
        "not decided.",
    ]


def table(results):
    lines = ["| claim | the paper | verdict | why |", "| --- | --- | --- | --- |"]
    lines += [f"| {result['id']} | {cell(result['paper'])} | **{result['verdict']}** | "
              f"{cell(result['sentence'])} |" for result in results]
    return lines


def details(result):
    lines = [f"### {result['id']}: {result['verdict']}", ""]
    lines += ["| what | paper | here: median (least to most) | asked for | |", "| --- | --- | --- | --- | --- |"]
    mark = {True: "holds", False: "does not hold", None: "not decided"}
    lines += [f"| {cell(check['what'])} | {cell(check['paper'])} | {cell(check['text'])} | "
              f"{cell(check['rule'])} | {mark[check['holds']]} |" for check in result["checks"]]
    lines += [f"| {cell(what)} | | {cell(text)} | | |" for what, text in result["figures"]]
    lines.append("")
    facts = []
    if result["records"]:
        facts.append("Records: " + ", ".join(f"{ours:,} (paper {paper:,})"
                                             for paper, ours in result["records"]) + ".")
    if result["note"]:
        facts.append(result["note"][0].upper() + result["note"][1:] + ".")
    if result["cpu_share"] is not None and result["cpu_share"] < 0.98:
        facts.append(f"Not quiet: {100 * result['cpu_share']:.0f} % of the processor at worst.")
    if facts:
        lines += [" ".join(facts), ""]
    return lines + ["```", *result["commands"], "```", ""]


def markdown(results):
    commands = dict.fromkeys(result["invocation"] for result in results if result["invocation"])
    lines = [INTRO.format(commands="\n".join(commands)),
             *machine_lines(results), "", f"{len(results)} claims: {counts(results)}.", ""]
    lines += table(results)
    lines += ["", "## What was measured", ""]
    for result in results:
        if result["checks"] or result["figures"]:
            lines += details(result)
    return "\n".join(lines).rstrip() + "\n"
