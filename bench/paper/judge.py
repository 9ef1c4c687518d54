"""How a claim is judged. Runs nothing: claims hand in what was measured, one value for each round."""

import dataclasses
import statistics

HOLDS = "holds"
PART = "holds in part"
NOT = "does not hold"
CANNOT = "cannot be tested here"
OPEN = "open"
# Of several claims.
PLURALS = {HOLDS: "hold", PART: "hold in part", NOT: "do not hold", CANNOT: CANNOT, OPEN: "are open"}


@dataclasses.dataclass(frozen=True)
class Check:
    """One figure of a claim beside ours. `holds` is None if the rounds disagree."""

    what: str
    paper: str
    rule: str
    ours: tuple
    text: str
    holds: bool | None
    counted: bool = False  # a count or a size, which a busy machine does not change


def number(value):
    """Three digits that mean something."""
    if value == 0:
        return "0"
    if 0.001 <= abs(value) < 100_000:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 4
        return f"{value:.{digits}f}"
    return f"{value:.2e}"


def show(values, unit=""):
    """Median (least to most)."""
    middle = number(statistics.median(values)) + unit
    if len(values) == 1:
        return middle
    return f"{middle} ({number(min(values))} to {number(max(values))})"


def between(what, paper, values, low=None, high=None, unit=""):
    """Every round inside: holds. Every round outside: does not. Else the noise decides: None."""
    values = tuple(values)
    inside = [(low is None or value >= low) and (high is None or value <= high) for value in values]
    if not inside:
        raise ValueError(f"{what}: nothing was measured")
    bounds = [f"{word} {number(limit)}{unit}"
              for word, limit in (("at least", low), ("at most", high)) if limit is not None]
    holds = True if all(inside) else None if any(inside) else False
    return Check(what, paper, " and ".join(bounds), values, show(values, unit), holds)


def at_least(what, paper, values, limit, unit=""):
    return between(what, paper, values, low=limit, unit=unit)


def at_most(what, paper, values, limit, unit=""):
    return between(what, paper, values, high=limit, unit=unit)


def exactly(what, figure, value, slack=1e-9):
    """A count. `slack`: part of it by which it may differ."""
    rule = f"exactly {number(figure)}" if slack < 1e-6 else f"{number(figure)} but for {slack:.1%}"
    holds = abs(value - figure) <= slack * max(1, abs(figure))
    return Check(what, number(figure), rule, (value,), number(value), holds)


def gain(what, ratio, values):
    """A speed-up by `ratio` in the paper: half of what it gains must be there."""
    return at_least(what, f"{ratio:g}x", values, 1 + (ratio - 1) / 2, "x")


def loss(what, percent, values):
    """What something costs in the paper: at most twice as much."""
    return at_most(what, f"{percent:g} %", values, 2 * percent, " %")


def near(what, figure, values, unit=""):
    """A figure as such: from half of it to half as much again."""
    return between(what, f"{figure:g}{unit}", values, figure / 2, figure * 1.5, unit)


def counted(check):
    return dataclasses.replace(check, counted=True)


def only_if(enough, check):
    """Of too little that was measured no figure decides."""
    return check if enough else dataclasses.replace(check, holds=None, rule=check.rule + "; too few keys to decide")


def undecided(checks):
    """The same figures, of which no time decides anything."""
    return [check if check.counted else dataclasses.replace(check, holds=None) for check in checks]


def verdict(checks, needs=()):
    """(word, sentence) of what was checked; `needs`: what the rest of the claim waits for."""
    yes = sum(check.holds is True for check in checks)
    no = sum(check.holds is False for check in checks)
    unclear = len(checks) - yes - no
    parts = [f"{count} {word}" for count, word in
             ((yes, "hold" if yes > 1 else "holds"), (no, "do not" if no > 1 else "does not"),
              (unclear, "not decided")) if count]
    if not checks:
        return OPEN, "needs " + ", ".join(needs)
    if needs:
        parts.append("open: " + ", ".join(needs))
    sentence = "; ".join(parts)
    if yes and not (no or unclear or needs):
        return HOLDS, sentence
    if yes:
        return PART, sentence
    return (NOT if no else CANNOT), sentence
