"""Words of each multi-word compare-and-swap."""

import judge
from lab import STRICT

ID = "bz:table1"
PAPER = "insert 2+2, delete 2, update 3 (pointer) or 2 (inline), consolidate 2, split 1+3, merge 2+3"
NOTE = "with reserve=entry, the paper's reservation; the default reserves by the leaf's status word alone, so that the " \
       "first of an insertion's two has one word. Counted over whole phases; what consolidations and merges account " \
       "for is taken off first"
POINTER, INLINE = "bztree:reserve=entry", "bztree:reserve=entry:update=inline"
COUNTED = True


def measure(lab):
    seen = lab.bench("--index", f"{POINTER},{INLINE}", "--records", lab.records(1_000_000),
                     "--workload", "load,update,remove", *STRICT)

    def figures(index, phase):
        row = next(row for row in seen["rows"] if (row["index"], row["phase"]) == (index, phase))
        return {"ops": row["ops"]} | {name: value["change"] for name, value in row["tree"].items()}

    return {"load": figures(POINTER, "load"), "remove": figures(POINTER, "remove"),
            "pointer": figures(POINTER, "update"), "inline": figures(INLINE, "update")}


def judge_claim(seen):
    load, remove = seen["load"], seen["remove"]
    pointer, inline = seen["pointer"], seen["inline"]
    splits = load["splits"] + load["inner_splits"]
    checks = []

    def exact(what, paper, count, of):
        if of:
            checks.append(judge.exactly(what, paper, count / of, slack=0.001))

    exact("of two words in an insertion", 2, load["pmwcas_2_words"], load["ops"])
    exact("of one word in a split", 1, load["pmwcas_1_words"] - load["consolidations"], splits)
    # The split of a root puts the new root into place by two words.
    if splits:
        checks.append(judge.between("of three words in a split, roots but for", "1",
                                    [load["pmwcas_3_words"] / splits], 0.95, 1))
    exact("of two words in a deletion", 1,
          remove["pmwcas_2_words"] - remove["consolidations"] - remove["merges"], remove["ops"])
    exact("of three words in a merge", 1, remove["pmwcas_3_words"], remove["merges"])
    exact("of three words in an update, pointer", 1, pointer["pmwcas_3_words"], pointer["ops"])
    exact("of two words in an update, inline", 1,
          inline["pmwcas_2_words"] - inline["consolidations"] - inline["merges"], inline["ops"])
    return checks
