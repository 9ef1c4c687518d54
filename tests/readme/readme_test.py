"""README.md's first steps give what README.md shows.

readme_test.py cpp|shell|python    python: with the interpreter that has the package
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

README = pathlib.Path(__file__).parents[2] / "README.md"


def blocks(text):
    """{(section, language): content} of the fenced blocks; the program before any section is ''."""
    found = {}
    section = ""
    for match in re.finditer(r"^#{2,3} ([^\n]+)$|^```(\w+)\n(.*?)^```$", text, re.M | re.S):
        if match[1]:
            section = match[1]
        else:
            found.setdefault((section, match[2]), match[3])
    return found


def steps(transcript):
    """Of a block with prompts: each command with the output that follows it."""
    for part in transcript.removeprefix("$ ").split("\n$ "):
        command, _, output = part.partition("\n")
        yield command, output if not output or output.endswith("\n") else output + "\n"


def run(command, directory):
    done = subprocess.run(command, shell=True, cwd=directory, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"failed ({done.returncode}): {command}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(what, shown, printed):
    if shown != printed:
        sys.exit(f"{what}: README.md shows\n{shown}and it prints\n{printed}")


def follow(transcript, directory):
    """Runs it; of CMake's own commands nobody shows what they print."""
    ran = 0
    for command, shown in steps(transcript):
        printed = run(command, directory)
        if not command.startswith("cmake "):
            expect(command, shown, printed)
        ran += 1
    if ran < 4:
        sys.exit("README.md: the commands are not found")


def cpp(shown, home):
    run(f"cmake --install '{os.environ['EVERLEAF_BUILD']}' --prefix '{home}/.local' "
        "--component development", home)
    (home / "hello.cpp").write_text(shown["", "cpp"])
    (home / "CMakeLists.txt").write_text(shown["C++", "cmake"])
    follow(shown["C++", "console"], home)


def shell(shown, home):
    # Where `make install` puts it.
    program = home / ".local/bin/everleaf"
    program.parent.mkdir(parents=True)
    program.symlink_to(os.environ["EVERLEAF"])
    os.environ["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    follow(shown["Shell", "console"], home)


def python(shown, home):
    (home / "words.py").write_text(shown["Python", "python"])
    expect("words.py", shown["Python", "text"], run(f"'{sys.executable}' words.py", home))


def main():
    run_steps = {"cpp": cpp, "shell": shell, "python": python}[sys.argv[1]]
    with tempfile.TemporaryDirectory(prefix="everleaf-readme-") as home:
        os.environ["HOME"] = home
        run_steps(blocks(README.read_text()), pathlib.Path(home))


if __name__ == "__main__":
    main()
