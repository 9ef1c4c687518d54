"""Runs the project's programs for claims, and remembers what ran and how quiet it was."""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import checkout
import host

STRICT = ("--domain", "memory", "--emulate")  # every clwb and sfence is executed, on DRAM

QUIET = 0.7  # of the processor; below it a run is repeated
TRIES = 2
BUSY = 0.5  # below it the quieter run decides nothing, either


class CannotTest(Exception):
    """This machine, or what is installed on it, lacks what a claim needs."""


class Failed(Exception):
    """A program did not do what it was asked for."""


class Rows:
    """What one run of everleaf-bench measured."""

    def __init__(self, rows):
        self.rows = rows

    def row(self, index, phase, threads=1):
        for row in self.rows:
            if (row["index"], row["phase"], row["threads"]) == (index, phase, threads):
                return row
        raise Failed(f"no row of {index}, {phase}, {threads} thread(s)")

    def of(self, field, index, phase, threads=1):
        return self.row(index, phase, threads)[field]

    def mops(self, index, phase, threads=1):
        """Million operations in a second of the thread's processor time: time that other programs
        took is not counted. Of several threads in a second: what they lack is taken by the tree's
        own threads, too, or spent waiting."""
        row = self.row(index, phase, threads)
        return row["mops"] / (row["cpu_share"] if threads == 1 else 1)

    def change(self, figure, index, phase, threads=1):
        """Of what a tree counts itself, in the phase."""
        return self.row(index, phase, threads)["tree"][figure]["change"]


class Openings:
    """Of one row of `--recovery`: what each opening took and found."""

    def __init__(self, rows):
        opened = rows[0]["opened"]
        self.ns = [one["open_ns"] + one["index_ns"] for one in opened]
        self.keys = [one["size"] for one in opened]
        self.dram = [one["dram_bytes"] for one in opened]

    def time_over(self, other):
        """For each round."""
        return [mine / theirs for mine, theirs in zip(self.ns, other.ns)]

    def keys_over(self, other):
        return [mine / theirs for mine, theirs in zip(self.keys, other.keys)]


def array_of(out):
    """What everleaf-micro wrote to, and why it has that size."""
    return f"{out['bytes'] / 2**20:.4g} MiB and {out['cache_bytes'] / 2**20:.4g} MiB"


class Lab:
    def __init__(self, programs, scale, repeat, directory=None):
        self.programs = programs
        self.scale = scale
        self.repeat = repeat
        self.directory = directory
        self.before = ""  # each command that is remembered
        self.machine = None
        self.begin()

    def begin(self):
        """Another claim."""
        self.commands = []
        self.sizes = {}
        self.least_cpu_share = None
        self.rounds_run = None
        self.repeated = 0

    def records(self, paper):
        """The paper's number of records to scale."""
        count = max(2000, int(paper * self.scale))
        self.sizes[paper] = count
        return str(count)

    def ops(self, paper):
        """Operations after a load take little time: only a tiny scale has fewer."""
        return str(max(1000, int(paper * min(1.0, self.scale * 100))))

    def path_of(self, program):
        """Beside this program, where a build tree has it, or on the path; None: it is not there."""
        for folder in ("", "../libexec", "../crash", "../crash/traffic", "../tests/scenarios"):
            path = os.path.join(self.programs, folder, program)
            if os.access(path, os.X_OK):
                return path
        return shutil.which(program)

    def remember(self, program, arguments):
        command = " ".join([re.sub("^everleaf-(bench|crash|traffic)$", r"everleaf \1", program), *arguments])
        command = self.before + command
        if command not in self.commands:
            self.commands.append(command)

    def run(self, program, *arguments, remember=True, shows_progress=False):
        """Standard output. `shows_progress`: on a terminal the program does so itself."""
        if remember:
            self.remember(program, arguments)
        path = self.path_of(program)
        if path is None:
            raise CannotTest(f"the program {program} is not there")
        shown = shows_progress and sys.stderr.isatty()
        done = subprocess.run([path, *arguments], stdout=subprocess.PIPE,
                              stderr=None if shown else subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            reason = ((done.stderr or "").strip().splitlines() or ["no reason given"])[-1]
            raise Failed(f"{program} ended with {done.returncode}: {reason}")
        return done.stdout

    def json_of(self, program, *arguments, hidden=(), shows_progress=False):
        """The file that it writes for --json; `hidden` arguments are not worth remembering."""
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "out.json")
            self.run(program, *arguments, "--json", path, *hidden, remember=False,
                     shows_progress=shows_progress)
            self.remember(program, arguments)
            with open(path, encoding="utf-8") as file:
                return json.load(file)

    def bench(self, *arguments, seed=1):
        hidden = ["--seed", str(seed)]
        if self.directory:
            hidden += ["--dir", self.directory]
        if "--recovery" not in arguments:
            hidden += ["--repeat", "1"]
        out = self.json_of("everleaf-bench", *arguments, hidden=hidden)
        self.machine = self.machine or out["machine"]
        return out

    def ask_machine(self):
        """Of programs that do not describe it: the bench does, on next to nothing."""
        if self.machine is None and self.path_of("everleaf-bench"):
            with tempfile.TemporaryDirectory() as place:
                path = os.path.join(place, "out.json")
                self.run("everleaf-bench", "--index", "wbtree", "--records", "1000", "--workload", "load",
                         "--repeat", "1", "--domain", "volatile", "--json", path, remember=False)
                with open(path, encoding="utf-8") as file:
                    self.machine = json.load(file)["machine"]
        return self.machine

    def quiet_bench(self, arguments, seed):
        """Rows of a run. One that something disturbed is made again, and the quietest one counts,
        whatever it measured."""
        return self.quietest(lambda: self.bench(*arguments, seed=seed)["rows"],
                             lambda rows: min(row["cpu_share"] for row in rows))

    def quietest(self, run, share_of):
        best, best_share = None, -1
        for _ in range(TRIES):
            rows = run()
            share = share_of(rows)
            if share > best_share:
                best, best_share = rows, share
            if share >= QUIET:
                break
            self.repeated += 1
        self.least_cpu_share = min(best_share, self.least_cpu_share or 1)
        return best

    def rounds(self, setups):
        """Name -> arguments of everleaf-bench. Each round runs all of them once, the first one last
        in the next; returns name -> one Rows for each round."""
        self.rounds_run = self.repeat
        seen = {name: [] for name in setups}
        names = list(setups)
        for number in range(self.repeat):
            for name in names:
                if sys.stderr.isatty():
                    print(f"\r\033[K  round {number + 1}/{self.repeat}: {name}", end="",
                          file=sys.stderr, flush=True)
                seen[name].append(Rows(self.quiet_bench(setups[name], number + 1)))
            names = names[1:] + names[:1]
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        return seen

    def one(self, *arguments):
        """rounds() of a single setup."""
        return self.rounds({"": arguments})[""]

    def traffic(self, machine, index, workload, records, ops, *more):
        """(Index, phase) -> what everleaf-traffic counts there. Its caches are scaled as the records
        are, so that as much of a tree fits."""
        out = self.json_of("everleaf-traffic", "--machine", machine, "--index", ",".join(index),
                           "--workload", workload, "--records", self.records(records), "--ops",
                           self.ops(ops), "--cache-scale", f"{min(1.0, self.scale):g}", *more)
        return {f"{row['index']} {row['workload']}": row for row in out["traffic"]}

    def micro(self):
        """everleaf-micro, whose array has a size of its own but for tests of these programs."""
        tiny = ["--lines", "2000"] if self.scale < 0.001 else []
        return self.json_of("everleaf-micro", *tiny, "--repeat", str(self.repeat),
                            shows_progress=True)

    def recovery(self, *arguments, cores=None):
        """Rows of `--recovery`; its rounds are crashes. Of its rounds the median counts for how quiet
        it was: an opening may take less than a slice of the processor's time."""
        self.rounds_run = self.repeat
        if cores is not None:
            self.needs_cores(cores)
            with host.first_cores(cores) as some:
                self.before = f"taskset -c {some} "
                try:
                    return self.recovery(*arguments)
                finally:
                    self.before = ""
        return self.quietest(
            lambda: self.bench(*arguments, "--recovery", "--repeat", str(self.repeat))["recovery"],
            lambda rows: min(statistics.median(one["cpu_share"] for one in row["opened"]) for row in rows))

    def needs_cores(self, count):
        have = host.cores()
        if have < count:
            raise CannotTest(f"{count} cores are needed, there are {have}")

    def commit(self):
        """That the programs should be built from; "" if there are no sources."""
        try:
            return checkout.commit(self.sources())
        except CannotTest:
            return ""

    def sources(self):
        """The source tree that this was built from."""
        place = os.path.realpath(self.programs)
        while True:
            if os.path.isdir(os.path.join(place, "src", "trees")):
                return place
            if place == os.path.dirname(place):
                raise CannotTest("the sources are not there")
            place = os.path.dirname(place)
