"""everleaf paper: runs what the papers claim, and says what holds here."""

import argparse
import datetime
import difflib
import json
import os
import signal
import sys
import time

import book
import judge
import lab
import page

EXIT_USAGE = 2
EXIT_IO = 3


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="everleaf paper", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs claims of the papers and says whether they hold on this machine.",
        epilog="Exit codes: 0 done, whatever the verdicts; 2 bad usage; 3 a program failed, a file\n"
               "cannot be read or written. Results are added to FILE: claims that did not run this\n"
               "time, or whose programs failed, stay. Reference: bench/paper/README.md")
    parser.add_argument("id", nargs="*", help="claims such as bz:fig6; --list shows them")
    parser.add_argument("--all", action="store_true", help="every claim")
    parser.add_argument("--list", action="store_true", help="the claims, and which of them can run")
    parser.add_argument("--scale", type=float, default=0.1,
                        help="part of the paper's number of records (default: 0.1)")
    parser.add_argument("--repeat", type=int, default=3, help="rounds of each measurement (default: 3)")
    parser.add_argument("--dir", help="where pools go; default: as everleaf bench")
    parser.add_argument("--json", metavar="FILE", help="results for programs, also for `everleaf report`")
    parser.add_argument("--page", metavar="FILE", help="write the results of --json as Markdown")
    options = parser.parse_intermixed_args(arguments)
    if not 0 < options.scale <= 10:
        parser.error("--scale must be above 0 and at most 10")
    if not 1 <= options.repeat <= 100:
        parser.error("--repeat must be from 1 to 100")
    if not (options.id or options.all or options.list or options.page):
        parser.error("name claims, or --all, --list")
    if options.page and not options.json:
        parser.error("--page needs --json: it shows what that file holds")
    return options


def fail(code, message):
    print(f"everleaf-paper: {message}", file=sys.stderr)
    sys.exit(code)


def choose(claims, options):
    """The claims to run. Exits when one does not exist."""
    for name in options.id:
        if name not in claims:
            near = difflib.get_close_matches(name, claims, 1)
            hint = f"; did you mean {near[0]}?" if near else ";"
            fail(EXIT_USAGE, f"no claim '{name}'{hint} `everleaf paper --list` shows them all")
    return list(claims.values()) if options.all else [claims[name] for name in options.id]


def read_results(path):
    """Id -> result of an earlier run; empty if there is no file."""
    if not path or not os.path.exists(path):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if content["program"] != "everleaf-paper" or content["schema"] != 1:
            raise ValueError("of another program or version")
        return {result["id"]: result for result in content["claims"]}
    except OSError as error:
        fail(EXIT_IO, f"cannot read {path}: {error.strerror}")
    except (ValueError, KeyError, TypeError) as error:
        fail(EXIT_USAGE, f"{path} does not hold results of everleaf paper: {error}")


def write(path, text):
    """Whole or not at all."""
    try:
        with open(path + ".part", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".part", path)
    except OSError as error:
        fail(EXIT_IO, f"cannot write to {path}: {error.strerror}")


def write_results(path, results, claims):
    known = [results[name] for name in claims if name in results]
    write(path, json.dumps({"program": "everleaf-paper", "schema": 1, "claims": known}, indent=1) + "\n")


def settle(claim, place):
    """Runs the claim and judges: (verdict, sentence, checks, figures, whether a program failed)."""
    if claim.cannot:
        return judge.CANNOT, claim.cannot, [], [], False
    if claim.measure is None:
        return *judge.verdict([], claim.needs), [], [], False
    try:
        seen = claim.measure(place)
    except lab.CannotTest as reason:
        return judge.CANNOT, str(reason), [], [], False
    except lab.Failed as reason:
        return judge.CANNOT, f"failed: {reason}", [], [], True
    checks = claim.judge(seen) if claim.judge else []
    figures = claim.show(seen) if claim.show else []
    share = place.least_cpu_share
    if claim.counted or share is None or share >= claim.least_share:
        return *judge.verdict(checks, claim.needs), checks, figures, False
    word, sentence = judge.verdict(judge.undecided(checks), claim.needs)
    sentence = f"the machine was too busy, {100 * share:.0f} % of the processor at worst; {sentence}"
    return word, sentence, judge.undecided(checks), figures, False


def invocation(options):
    """What was typed, but for the names of files."""
    names = ["--all"] if options.all else options.id
    return " ".join(["everleaf paper", *names, f"--scale {options.scale:g} --repeat {options.repeat}"])


def result_of(claim, place, options):
    """What one claim came to, as it stands in the file; and whether a program failed."""
    place.begin()
    began = time.monotonic()
    load = os.getloadavg()[0]
    word, sentence, checks, figures, failed = settle(claim, place)
    ran = bool(place.commands)
    return {
        "id": claim.id, "paper": claim.paper, "verdict": word, "sentence": sentence,
        "checks": [{"what": check.what, "paper": check.paper, "rule": check.rule,
                    "ours": list(check.ours), "text": check.text, "holds": check.holds}
                   for check in checks],
        "figures": figures, "note": claim.note, "needs": list(claim.needs), "commands": place.commands,
        "scale": options.scale if ran else None, "rounds": place.rounds_run,
        "records": sorted(place.sizes.items()), "seconds": round(time.monotonic() - began, 1),
        "cpu_share": place.least_cpu_share, "repeated": place.repeated, "load_average": load if ran else None,
        "machine": place.ask_machine() if ran else None, "invocation": invocation(options) if ran else None,
        "commit": place.commit() if ran else "",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }, failed


def show(result):
    print(f"{result['id']}: {result['verdict']}")
    print(f"  paper: {result['paper']}")
    for check in result["checks"]:
        mark = {True: "holds", False: "does not hold", None: "not decided"}[check["holds"]]
        print(f"  {check['what']}: {check['text']}; paper {check['paper']}; asked for: "
              f"{check['rule']}: {mark}")
    for what, text in result["figures"]:
        print(f"  {what}: {text}")
    if result["sentence"]:
        print(f"  {result['sentence']}")
    if result["note"]:
        print(f"  here: {result['note']}")
    if result["records"]:
        sizes = ", ".join(f"{ours:,} (paper {paper:,})" for paper, ours in result["records"])
        rounds = f"; {result['rounds']} round(s)" if result["rounds"] else ""
        print(f"  records: {sizes}{rounds}")
    for command in result["commands"]:
        print(f"  ran: {command}")
    if result["cpu_share"] is not None and result["cpu_share"] < 0.98:
        print(f"  the machine was not quiet: at worst {100 * result['cpu_share']:.0f} % of the "
              "processor was ours")
    print(flush=True)


def show_list(claims):
    for claim in claims.values():
        state = "runs" if claim.measure else "cannot be tested here" if claim.cannot else "open"
        rest = ", ".join(claim.needs)
        rest = f": {rest}" if state == "open" else f"; open: {rest}" if rest else ""
        print(f"{claim.id:14} {state}{rest}\n{'':14} {claim.paper}")


def main():
    options = parse(sys.argv[1:])
    claims = book.load()
    if options.list:
        show_list(claims)
        return 0
    chosen = choose(claims, options)
    results = read_results(options.json)
    place = lab.Lab(os.path.dirname(os.path.abspath(sys.argv[0])), options.scale, options.repeat,
                    options.dir)
    if any(claim.measure for claim in chosen) and not place.path_of("everleaf-bench"):
        fail(EXIT_IO, "everleaf-bench is not there: build it with -DEVERLEAF_BENCH=ON (make bench)")
    if options.json:
        write_results(options.json, results, claims)  # a wrong name must not cost the run
    any_failed = False
    for claim in chosen:
        try:
            result, failed = result_of(claim, place, options)
        except (KeyboardInterrupt, Terminated):
            say_lost(claim, options)
            raise
        any_failed = any_failed or failed
        if not failed or claim.id not in results:  # a program that failed says nothing new of it
            results[claim.id] = result
        show(result)
        if options.json:
            write_results(options.json, results, claims)
    if options.page:
        write(options.page, page.markdown([results[name] for name in claims if name in results]))
    return EXIT_IO if any_failed else 0


class Terminated(BaseException):
    """SIGTERM: on its way out it ends the program that runs."""


def say_lost(claim, options):
    """A claim is judged by all of its rounds: of a part of them there is no result."""
    if claim.measure is None:
        return
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    kept = f"; {options.json} has the claims before it" if options.json else ""
    print(f"{clear}everleaf-paper: stopped in {claim.id}, whose rounds so far are lost{kept}", file=sys.stderr,
          flush=True)


def terminate(number, frame):
    raise Terminated


def die_of(number):
    """Whoever started this shall see why it ended. What was measured is in the file."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, terminate)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        die_of(signal.SIGINT)
    except Terminated:
        die_of(signal.SIGTERM)
    except BrokenPipeError:
        die_of(signal.SIGPIPE)
