"""The examples of README.md and of the package's docstring run, and say what is so."""

import pathlib
import re
import textwrap

import everleaf
import pytest

README = pathlib.Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"(?ms)^```python\n(.*?)^```", README.read_text())


def test_there_are_examples():
    assert len(BLOCKS) >= 3 and all("assert" in block for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_readme(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(README), "exec"), {})
    assert list(tmp_path.iterdir())


def test_the_docstring(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = everleaf.__doc__.split("\n")
    code = "\n".join(line for line in lines if not line or line.startswith("    "))
    exec(textwrap.dedent(code), {})
    assert capsys.readouterr().out == "b'ada' b'Countess of Lovelace'\n"


def test_everything_that_is_public_says_what_it_is():
    for name in everleaf.__all__:
        one = getattr(everleaf, name)
        assert one.__doc__, name
        for method, value in vars(one).items() if isinstance(one, type) else ():
            if method.startswith("_") or not callable(value):
                continue
            assert value.__doc__, f"{name}.{method}"
