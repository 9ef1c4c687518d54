"""The claims, one module of claims/ each.

A module has ID, PAPER (what the paper prints) and any of
  measure(lab)    runs programs, returns plain data that JSON can hold
  judge_claim(seen)  that data -> a list of judge.Check
  show_claim(seen)   figures of ours that no rule is for: a list of (what, text)
  NEEDS           what parts of the claim wait for, by name; without measure(): the whole claim
  CANNOT          why no machine like this one can tell
  COUNTED         True: its figures are counts and sizes, which a busy machine does not change
  LEAST_SHARE     of the processors; below it nothing is decided (default: lab.BUSY). Tails of latencies
                  hold whatever else ran
  NOTE            how what is run here differs from the paper's
"""

import importlib
import pkgutil

import claims
import lab

# All there are, in the order of the papers' publication and of their text.
IDS = """
    wb:table3 wb:fig4 wb:fig11 wb:fig12 wb:fig13 wb:fig14 wb:fig15
    bz:fig4 bz:fig5 bz:fig6 bz:fig7 bz:pmwcas bz:table1 bz:fig8a bz:fig8b bz:memory bz:fig9 bz:recovery
    bz:complexity
    pb:fig1 pb:fig7 pb:fig7(d) pb:fig8 pb:fig9 pb:fig10 pb:fig11 pb:fig12
    bd:fig1 bd:fig5 bd:fig6 bd:fig7 bd:cache bd:fig8 bd:fig9 bd:table3 bd:model bd:fig10 bd:fig11
    bd:recovery
    lo:slots lo:fig11 lo:fig12 lo:fig13 lo:fig14 lo:fig15 lo:fig16 lo:fig17 lo:fig18 lo:fig19""".split()


class Claim:
    def __init__(self, module):
        self.id = module.ID
        self.paper = module.PAPER
        self.measure = getattr(module, "measure", None)
        self.judge = getattr(module, "judge_claim", None)
        self.show = getattr(module, "show_claim", None)
        self.needs = tuple(getattr(module, "NEEDS", ()))
        self.cannot = getattr(module, "CANNOT", "")
        self.counted = getattr(module, "COUNTED", False)
        self.least_share = getattr(module, "LEAST_SHARE", lab.BUSY)
        self.note = getattr(module, "NOTE", "")


def load():
    """Id -> claim, in the order of IDS."""
    found = [Claim(importlib.import_module("claims." + info.name))
             for info in pkgutil.iter_modules(claims.__path__)]
    return {claim.id: claim for claim in sorted(found, key=lambda claim: IDS.index(claim.id))}
