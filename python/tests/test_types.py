"""The types that the package promises are those of the extension, and of what users write."""

import ast
import pathlib
import subprocess
import sys

import everleaf

PACKAGE = pathlib.Path(everleaf.__file__).parent


def shape(text):
    return ast.unparse(ast.parse(text))


def test_the_stub_is_that_of_the_extension(tmp_path):
    made = tmp_path / "made.pyi"
    subprocess.run(
        [sys.executable, "-m", "nanobind.stubgen", "-q", "-D", "-m", "everleaf._everleaf", "-o", made],
        check=True, cwd=tmp_path)
    assert shape(made.read_text()) == shape((PACKAGE / "_everleaf.pyi").read_text())


def check(tmp_path, program):
    (tmp_path / "program.py").write_text(program)
    return subprocess.run([sys.executable, "-m", "mypy", "--strict", "program.py"], cwd=tmp_path,
                          capture_output=True, text=True)


def test_users_have_types(tmp_path):
    done = check(tmp_path, """
from typing import Optional, Union
from typing_extensions import assert_type
import everleaf

with everleaf.open(b"s") as store:
    users, hits = store.table("users"), store.table("hits", int)
    assert_type(users, everleaf.Table[bytes])
    assert_type(hits, everleaf.Table[int])
    assert_type(hits[5], bytes)
    assert_type(hits[5:], everleaf.Range[int])
    assert_type(hits[5:].first(), Optional[tuple[int, bytes]])
    assert_type(users.get(b"k"), Optional[bytes])
    assert_type(users.get(b"k", 1), Union[bytes, int])
    assert_type(users.pop(b"k"), bytes)
    assert_type(users.pop(b"k", None), Optional[bytes])
    assert_type(list(hits), list[int])
    assert_type(list(users.items()), list[tuple[bytes, bytes]])
    assert_type(next(hits.items(reverse=True)), tuple[int, bytes])
    users[b"k"] = bytearray(b"v")
    with store.batch() as batch:
        batch.put(users, b"k", memoryview(b"v"))
        batch.erase(hits, 5)
    assert_type(store.epochs().now, int)
    assert_type(store.info().file_bytes, int)
    assert_type(everleaf.repair("s", "t", tables={"n": int}).tables[0].found, int)
""")
    assert done.returncode == 0, done.stdout


def test_mistakes_have_none(tmp_path):
    mistakes = ['users["text"]', "hits[b'k']", "users[b'k'] = 'text'", "store.table('n', str)",
                "everleaf.open('s', 'w')", "batch.put(hits, b'k', b'v')", "users.prefix(5)",
                "hits.prefix(b'k')", "store.wait_durable('1')", "store.info()['path']"]
    done = check(tmp_path, """import everleaf
store = everleaf.memory()
users, hits, batch = store.table("users"), store.table("hits", int), store.batch()
""" + "\n".join(mistakes))
    wrong = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert wrong == set(range(4, 4 + len(mistakes))), done.stdout
