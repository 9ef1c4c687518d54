#!/usr/bin/env python3
"""Plants bugs in copies of the sources and sees whether the crash checker finds them.

Each *.patch beside this file is one bug that real persistent indexes had, or its like: a line that
tells its story, an optional line "Run: ARGUMENTS", and the patch. A copy of the source tree gets one
bug at a time, is built, and everleaf-crash runs on it until it reports a failure or its budget ends.
The budget is processor time, so that other load changes little. What is reported counts if the
sources without the bug do not fail in the same way: neither in the replay of the failure, nor, where
the bug ended or hung the program without one, in the same run.

  planted.py --apply                     only proves that every patch applies
  planted.py --work DIR [--only NAME]... builds and runs; exit code 1 if a bug was not found
  planted.py --work DIR --json FILE --resume
                                         goes on where the run that wrote the file was ended
"""

import argparse
import fcntl
import json
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
IO_ERROR = 3
INTERRUPTED = 130
COPIED = ["CMakeLists.txt", "cmake", "crash", "include", "src"]


def bugs(only):
    """(name, story, run arguments or None, path) of every patch, in order."""
    for path in sorted(HERE.glob("*.patch")):
        if only and path.stem not in only:
            continue
        lines = path.read_text().splitlines()
        run = next((line[5:].split() for line in lines[:4] if line.startswith("Run: ")), None)
        yield path.stem, lines[0], run, path


def patch(tree, path, *more):
    return subprocess.run(
        ["patch", "--silent", "--strip=1", "--force", "--no-backup-if-mismatch", "--fuzz=0", *more,
         f"--input={path}"],
        cwd=tree, capture_output=True, text=True, check=False)


# With new times: an object that a run before made of a planted bug must not seem newer.
def copy_sources(tree):
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, dirs_exist_ok=True, copy_function=shutil.copy)
        else:
            shutil.copy(source, tree / name)


def apply_all(only):
    broken = 0
    for name, _, _, path in bugs(only):
        tried = patch(ROOT, path, "--dry-run")
        if tried.returncode != 0:
            broken += 1
            print(f"{name}: does not apply\n{tried.stdout}{tried.stderr}", file=sys.stderr)
    return broken


def build(work, jobs):
    return subprocess.run(["cmake", "--build", work / "build", "-j", str(jobs), "--target",
                           "everleaf-crash"], capture_output=True, text=True, check=False)


def configure(work):
    subprocess.run(
        ["cmake", "-S", work / "source", "-B", work / "build", "-G", "Ninja",
         "-DCMAKE_BUILD_TYPE=Release", "-DEVERLEAF_CLI=OFF", "-DEVERLEAF_TESTS=OFF",
         "-DEVERLEAF_BENCH=OFF", "-DEVERLEAF_WERROR=OFF", "-DEVERLEAF_CRASH=ON"],
        check=True, stdout=subprocess.DEVNULL)


def limits(budget):
    """Processor seconds of a process, and seconds on the clock: for what hangs, not for load."""
    return budget * 3 + 30, budget * 60 + 120


def crash_run(program, arguments, budget):
    """(exit code, output), or (None, ...) if it hung."""
    processor, clock = limits(budget)

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 5))

    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=clock,
                              preexec_fn=limit, check=False)
    except subprocess.TimeoutExpired:
        return None, ""
    if -done.returncode in (signal.SIGXCPU, signal.SIGKILL):
        return None, done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


def budget_of(budget):
    return ["--first", "--processor-time", "--budget", str(budget)]


# What a bug without a line of its own is looked for with, the quickest first.
def default_runs(name, budget):
    spent = budget_of(budget)
    if name.startswith("d"):
        yield ["--index", "all", "--keys", "both", "--threads", "2", *spent]
        return
    every = ["--index", "all", "--keys", "both", "--most", "100", *spent]
    yield [*every, "--ops", "60", "--nested", "1"]
    yield [*every, "--ops", "250", "--nested", "1", "--seed", "2"]
    yield [*every, "--ops", "60", "--nested", "2"]
    yield [*every, "--ops", "100", "--nested", "1", "--domain", "disk"]


class Effort:
    """What the runs of a bug did, as far as they lived to say so."""

    def __init__(self):
        self.sums = {"operations": 0, "crash_points": 0, "executions": 0}
        self.run_seconds = 0.0
        self.domains = set()

    def add(self, arguments, path):
        at = arguments.index("--domain") + 1 if "--domain" in arguments else 0
        self.domains.add(arguments[at] if at else "memory")
        try:
            rows = json.loads(path.read_text())
        except (OSError, ValueError):
            return
        for row in rows:
            for name in self.sums:
                self.sums[name] += row[name]
            if row["executions_per_second"]:
                self.run_seconds += row["executions"] / row["executions_per_second"]

    def figures(self):
        return {"domains": sorted(self.domains), **self.sums,
                "run_seconds": round(self.run_seconds, 3)}


def hunt(program, clean, name, run, budget, effort):
    """How the bug was found, or None."""
    rows = program.parent / "rows.json"
    for arguments in [run + budget_of(budget)] if run else default_runs(name, budget):
        rows.unlink(missing_ok=True)
        code, output = crash_run(program, [*arguments, "--json", str(rows)], budget)
        effort.add(arguments, rows)
        if code in (2, 3):
            sys.exit(f"{name}: {' '.join(arguments)}\n{output}")
        if code == 0:
            continue
        # The control: the sources without the bug do not fail so. 2: the line is of another build.
        words = re.search("--replay '(.*)'", output)
        again = ["--replay", words[1]] if words else arguments
        control, _ = crash_run(clean, again, budget)
        if control not in ((0, 2) if words else (0,)):
            sys.exit(f"{name}: without it, too: {' '.join(again)}")
        if words:
            return words[0]
        end = "hangs" if code is None else f"exit {code}"
        said = [line for line in output.splitlines() if "the process" in line or "stuck" in line]
        return f"{end}{': ' + said[0].strip() if said else ''} (without it, the same run is clean)"
    return None


def index_of(path):
    """Whose bug it is: a tree's, or that of a room below the trees."""
    files = re.findall(r"^\+\+\+ b/src/(?:trees/)?(\w+)/", path.read_text(), re.MULTILINE)
    return files[0] if files else "everleaf"


def read_json(path):
    """The bugs of each index that a run before hunted."""
    return {row["index"]: row["bugs"] for row in json.loads(path.read_text())}


def write_json(path, bugs_of):
    """One row per index, of the bugs that were hunted so far."""
    rows = []
    for index, hunted in sorted(bugs_of.items()):
        caught = sum(1 for bug in hunted if bug["found"])
        done = {name: sum(bug[name] for bug in hunted)
                for name in ("operations", "crash_points", "executions", "run_seconds")}
        rows.append({"index": index, "keys": "both",
                     "domain": ",".join(sorted({d for bug in hunted for d in bug["domains"]})),
                     "operations": done["operations"], "crash_points": done["crash_points"],
                     "executions": done["executions"],
                     "executions_per_second":
                         done["executions"] / done["run_seconds"] if done["run_seconds"] else 0,
                     "sites": len(hunted), "caught": caught,
                     "justified": 0, "failures": len(hunted) - caught, "bugs": hunted})
    path.write_text(json.dumps(rows, indent=2) + "\n")


def lock(work):
    """The folder is this run's alone until it ends."""
    work.mkdir(parents=True, exist_ok=True)
    held = (work / "lock").open("w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"another run plants bugs in {work}", file=sys.stderr)
        sys.exit(IO_ERROR)
    return held


def processor_seconds():
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def hunt_all(arguments):
    """The bugs of each index, and how each was found."""
    source = arguments.work / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    copy_sources(source)
    configure(arguments.work)
    program = arguments.work / "build" / "crash" / "everleaf-crash"
    clean = arguments.work / "everleaf-crash-clean"
    built = build(arguments.work, arguments.jobs)
    if built.returncode != 0:
        sys.exit(f"does not build\n{built.stdout[-3000:]}")
    shutil.copy2(program, clean)
    bugs_of = read_json(arguments.json) if arguments.resume else {}
    hunted_before = {bug["bug"] for hunted in bugs_of.values() for bug in hunted}
    for name, story, run, path in bugs(arguments.only):
        if name in hunted_before:
            continue
        if patch(source, path).returncode != 0:
            sys.exit(f"{name}: does not apply")
        built = build(arguments.work, arguments.jobs)
        if built.returncode != 0:
            sys.exit(f"{name}: does not build\n{built.stdout[-3000:]}")
        before = processor_seconds()
        effort = Effort()
        found = hunt(program, clean, name, run, arguments.budget, effort)
        seconds = processor_seconds() - before
        patch(source, path, "--reverse")
        bugs_of.setdefault(index_of(path), []).append(
            {"bug": name, "story": story, "found": found, "processor_seconds": round(seconds, 1),
             "budget": arguments.budget, **effort.figures()})
        print(f"{'found ' if found else 'MISSED'} {name:32} {seconds:6.1f} s  {found or story}",
              flush=True)
        if arguments.json:
            write_json(arguments.json, bugs_of)
    return bugs_of


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--apply", action="store_true", help="only prove that the patches apply")
    parser.add_argument("--work", type=pathlib.Path, help="folder for copies and builds")
    parser.add_argument("--only", action="append", help="one bug; may be repeated")
    parser.add_argument("--budget", type=int, default=20,
                        help="seconds of processor time for one run")
    parser.add_argument("--resume", action="store_true",
                        help="leave out the bugs that the file of --json has")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    unknown = set(arguments.only or []) - {name for name, *_ in bugs(None)}
    if unknown:
        parser.error(f"there is no bug of the name {sorted(unknown)[0]}")
    if arguments.apply:
        return 1 if apply_all(arguments.only) else 0
    if not arguments.work:
        parser.error("--apply or --work")
    if arguments.resume and not arguments.json:
        parser.error("--resume needs --json")
    arguments.resume = arguments.resume and arguments.json.exists()
    try:
        if arguments.json and not arguments.resume:
            write_json(arguments.json, {})
    except OSError as error:
        print(f"cannot write to '{arguments.json}': {error.strerror}", file=sys.stderr)
        return IO_ERROR
    held = lock(arguments.work)
    try:
        bugs_of = hunt_all(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED  # what was hunted is in the file
    held.close()
    hunted = [bug for some in bugs_of.values() for bug in some]
    caught = sum(1 for bug in hunted if bug["found"])
    print(f"{caught} of {len(hunted)} planted bugs found")
    return 0 if caught == len(hunted) else 1


if __name__ == "__main__":
    sys.exit(main())
