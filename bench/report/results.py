"""Reads and checks files of results."""

import json
import shlex


class WrongFile(Exception):
    """Not results; the message says why."""


# What the report uses of a row of everleaf-bench, and how it is typed.
NUMBER = (int, float)
ROW = {"index": str, "phase": str, "threads": int, "records": int, "repeat": int, "mops": NUMBER,
       "mops_min": NUMBER, "mops_max": NUMBER, "cpu_share": NUMBER, "survives": str, "domain": str,
       "distribution": str, "keys": str, "latency_samples": int, "p50_ns": NUMBER, "p90_ns": NUMBER,
       "p99_ns": NUMBER, "p999_ns": NUMBER, "p9999_ns": NUMBER, "p99999_ns": NUMBER,
       "pool_bytes_per_key": NUMBER, "huge_pages": NUMBER}
OPTIONAL = ("dram_bytes_per_key", "file_bytes_per_key", "flushes_per_op", "fences_per_op", "words_per_op")
# Of how a row was measured; older files lack some.
HOW = {"pages": str, "room": int, "store": bool, "value_bytes": int, "batch": int, "scan_length": int, "epoch_ns": int,
       "seed": int}
HOW_RECOVERED = {"domain": str, "pages": str, "keys": str}
HOW_MODELLED = {"machine": str, "flush": str, "records": int, "cache_bytes": int, "epoch_ops": int}
RECOVERY = {"index": str, "threads": int, "records": int, "opened": list}
CLAIM = {"id": str, "paper": str, "verdict": str, "sentence": str, "checks": list, "date": str}
CHECK = {"what": str, "paper": str, "rule": str, "text": str}
TRAFFIC = {"index": str, "workload": str, "ops": int, "read_mib": NUMBER, "written_mib": NUMBER,
           "media_read_mib": NUMBER, "media_written_mib": NUMBER}


def check(entry, fields, what):
    if not isinstance(entry, dict):
        raise WrongFile(f"a {what} is not an object")
    for name, kind in fields.items():
        if name not in entry:
            raise WrongFile(f"a {what} has no '{name}'")
        if not isinstance(entry[name], kind) or isinstance(entry[name], bool):
            raise WrongFile(f"'{name}' of a {what} is {entry[name]!r}")
        if kind is not str and kind is not list and not 0 <= entry[name] < 1e18:
            raise WrongFile(f"'{name}' of a {what} is {entry[name]!r}")
    return entry


def check_optional(entry, fields, what):
    for name, kind in fields.items():
        if entry.get(name) is not None and not isinstance(entry[name], kind):
            raise WrongFile(f"'{name}' of a {what} is {entry[name]!r}")


def run_of(content):
    """When and how a file was made: date, version and command as text; "" where it does not say."""
    command = content.get("command")
    if not (isinstance(command, list) and all(isinstance(word, str) for word in command)):
        command = []
    texts = [content.get(name) if isinstance(content.get(name), str) else "" for name in ("date", "version")]
    return (*texts, shlex.join(command))


class Results:
    """Of all files together."""

    def __init__(self):
        self.rows = []
        self.recovery = []
        self.claims = []
        self.traffic = []
        self.machines = []
        self.runs = []
        self.interrupted = False

    def add(self, content):
        if not isinstance(content, dict) or content.get("schema") != 1:
            raise WrongFile("not results of everleaf bench or everleaf paper")
        lists = {"rows": (ROW, "row", self.rows), "recovery": (RECOVERY, "recovery row", self.recovery),
                 "claims": (CLAIM, "claim", self.claims), "traffic": (TRAFFIC, "traffic row", self.traffic)}
        known = [name for name in lists if isinstance(content.get(name), list)]
        if not known:
            raise WrongFile("no rows, no claims")
        for name in known:
            fields, what, target = lists[name]
            target += [check(entry, fields, what) for entry in content[name]]
        for row in self.rows:
            for name in OPTIONAL:
                if row.setdefault(name, None) is not None:
                    check(row, {name: NUMBER}, "row")
            check_optional(row, HOW, "row")
            if row["mops"] == 0 or row["threads"] == 0:
                raise WrongFile("a row without throughput or threads")
        for claim in self.claims:
            for part in claim["checks"]:
                check(part, CHECK, "part of a claim")
        for row in self.recovery:
            check_optional(row, HOW_RECOVERED, "recovery row")
            for one in row["opened"]:
                check(one, {"open_ns": NUMBER, "index_ns": NUMBER}, "opening")
            if not row["opened"]:
                raise WrongFile("a recovery row without openings")
        for row in self.traffic:
            check_optional(row, HOW_MODELLED, "traffic row")
            if row["ops"] == 0:
                raise WrongFile("a traffic row without operations")
        if any(run_of(content)):
            self.runs.append(run_of(content))
        self.runs += dict.fromkeys(
            (claim["date"], "", claim["invocation"]) for claim in content.get("claims") or []
            if isinstance(claim.get("invocation"), str))
        machine = content.get("machine")
        for found in [machine] + [claim.get("machine") for claim in content.get("claims", [])]:
            if isinstance(found, dict) and found not in self.machines:
                self.machines.append(found)
        self.interrupted = self.interrupted or content.get("interrupted") is True

    @property
    def empty(self):
        return not (self.rows or self.recovery or self.claims or self.traffic)


def read(paths):
    """Raises WrongFile and OSError, with the path in them."""
    results = Results()
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                results.add(json.load(file))
        except (WrongFile, ValueError, RecursionError) as error:
            raise WrongFile(f"{path}: {error}") from error
    if results.empty:
        raise WrongFile(f"{', '.join(paths)}: nothing was measured")
    return results
