"""What outlives its store: after close(), after a drop, in a child of fork(), at the end of Python."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading

import everleaf
import pytest


def everything(store):
    """A call of each kind, by name: each must be refused once the store cannot be used."""
    table, numbers = store.table("t"), store.table("n", int)
    for i in range(300):
        table[b"%03d" % i] = numbers[i] = b"v"
    part, batch, full = table[b"1":b"2"], store.batch(), store.batch()
    views = {"keys": table.keys(), "values": part.values(), "items": numbers.items()}
    iterators = {"begun": iter(table), "reversed": reversed(numbers.items()), "values": iter(part.values())}
    for iterator in iterators.values():
        next(iterator)
    fresh = iter(numbers)
    full.put(table, b"k", b"v")

    def enter():
        with store:
            pass

    def apply(which):
        with which:
            pass

    path = str(store.path)
    calls = {
        "table": lambda: store.table("t"), "new table": lambda: store.table("new", int),
        "tables": store.tables, "drop_table": lambda: store.drop_table("t"), "batch": store.batch,
        "sync": store.sync, "epochs": store.epochs, "wait_durable": lambda: store.wait_durable(0),
        "backup": lambda: store.backup(path + ".copy"), "check": store.check, "info": store.info,
        "enter": enter,
        "apply": lambda: apply(full), "apply nothing": lambda: apply(batch),
        "batch.put": lambda: batch.put(numbers, 1, b""), "batch.erase": lambda: batch.erase(table, b""),
        "fresh iterator": lambda: next(fresh),
        "range": lambda: list(part), "range.first": part.first, "range.last": part.last,
        "range.len": lambda: len(part), "range.bool": lambda: bool(part),
        "range.get": lambda: part[b"100"], "range.in": lambda: b"100" in part,
        "del range": lambda: table.__delitem__(slice(b"1", b"2")),
        "prefix": lambda: list(table.prefix(b"1")),
    }
    for name, key, of in (("bytes", b"000", table), ("u64", 0, numbers)):
        calls.update({f"{name}.{call.__name__ if hasattr(call, '__name__') else ''}{i}": call
                      for i, call in enumerate((
            lambda of=of, key=key: of[key], lambda of=of, key=key: of.get(key),
            lambda of=of, key=key: of.__setitem__(key, b""), lambda of=of, key=key: of.__delitem__(key),
            lambda of=of, key=key: key in of, lambda of=of: len(of), lambda of=of: bool(of),
            lambda of=of: list(of), lambda of=of: list(reversed(of)), lambda of=of: of == {},
            lambda of=of, key=key: of.get_into(key, bytearray(1)),
            lambda of=of, key=key: of.insert(key, b""), lambda of=of, key=key: of.replace(key, b""),
            lambda of=of, key=key: of.discard(key), lambda of=of, key=key: of.pop(key, None),
            lambda of=of, key=key: of.setdefault(key, b""), lambda of=of: of.popitem(),
            lambda of=of, key=key: of.compare_and_set(key, None, b""),
            lambda of=of, key=key: of.update({key: b""}), lambda of=of: of.clear(),
            lambda of=of: of.stats()))})
    for name, view in views.items():
        calls[f"view {name}"] = lambda view=view: list(view)
        calls[f"view {name} reversed"] = lambda view=view: list(reversed(view))
        calls[f"view {name} length"] = lambda view=view: len(view)
    # It gives what it had copied, and never ends as if that were all.
    for name, iterator in iterators.items():
        calls[f"iterator {name}"] = lambda iterator=iterator: list(iterator)
    return calls


def refused(calls, error):
    """Names of those that were not."""
    wrong = []
    for name, call in calls.items():
        try:
            call()
        except error as caught:
            assert str(caught)
        except BaseException as other:
            wrong.append(f"{name}: {other!r}")
        else:
            wrong.append(name)
    return wrong


def test_after_close(store):
    calls = everything(store)
    table, batch = store.table("t"), store.batch()
    batch.put(table, b"k", b"v")
    path = store.path
    store.close()
    assert refused(calls, everleaf.ClosedError) == []
    store.close()
    assert store.closed and repr(store) == f"<everleaf.Store {path!r}, closed>"
    assert table.name == "t" and table.store is store and "'t'" in repr(table) and repr(table[b"a":])
    assert len(batch) == 1
    assert not os.path.exists(path + ".copy")
    # Nothing of all that keeps the file open, or wrote to it.
    with everleaf.open(path, "open") as again:
        assert len(again.table("t")) == 300 and again.info().clean
        with pytest.raises(everleaf.ClosedError):
            table[b"000"]
        with pytest.raises(ValueError):
            batch.put(again.table("t"), b"k", b"v")  # of another store
    del calls, batch, table
    gc.collect()


def test_after_a_store_that_nobody_closed(tmp_path):
    table = everleaf.open(tmp_path / "s").table("t")  # it keeps the store
    table[b"k"] = b"v"
    iterator = iter(table.items())
    del table
    gc.collect()
    assert next(iterator) == (b"k", b"v")
    with pytest.raises(everleaf.LockedError):
        everleaf.open(tmp_path / "s")
    del iterator
    gc.collect()
    with everleaf.open(tmp_path / "s", "open") as store:
        assert store.info().clean and store.table("t") == {b"k": b"v"}


def test_after_a_drop(store):
    table, batch = store.table("t"), store.batch()
    for i in range(300):
        table[b"%d" % i] = b"old"
    iterator, view = iter(table), table.items()
    next(iterator)
    batch.put(table, b"k", b"old")
    store.drop_table("t")
    again = store.table("t", int)  # with other keys, even
    for use in (lambda: table[b"1"], lambda: b"1" in table, lambda: len(table), lambda: bool(table),
                lambda: table.insert(b"1", b""), lambda: list(iterator), lambda: list(view),
                table.stats, lambda: batch.put(table, b"", b"")):
        with pytest.raises(everleaf.ClosedError) as caught:
            use()
        assert caught.value.code == "dropped"
    with pytest.raises(everleaf.ClosedError), batch:
        pass
    assert len(batch) == 0 and again == {}
    again[1] = b"new"
    assert store.tables() == {"t": int} and again == {1: b"new"}


def test_one_handle_for_a_table(store):
    first, second = store.table("t"), store.table("t")
    first[b"k"] = b"v"
    assert second == {b"k": b"v"}

    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(1000):
        store.table("t")
    before = resident()
    for _ in range(100_000):
        store.table("t")
    assert resident() - before < 100_000 * 16  # a handle has more than that
    store.drop_table("t")
    with pytest.raises(everleaf.ClosedError):
        second[b"k"]


def test_after_fork(store):
    calls = everything(store)
    calls["batch.len"] = lambda batch=store.batch(): len(batch)
    calls["close"] = store.close
    child = os.fork()
    if child == 0:
        try:
            wrong = refused(calls, everleaf.ForkedError)
            assert store.closed and repr(store)
            calls.clear()
            gc.collect()
            sys.stderr.write("".join(f"not refused: {one}\n" for one in wrong))
            os._exit(len(wrong))
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(store.table("t")) == 300 and store.check() == []


def test_no_pickles_and_no_copies(store):
    table = store.table("t")
    table[b"k"] = b"v"
    for one in (store, table, table[b"a":], store.batch(), table.items(), iter(table)):
        with pytest.raises(TypeError):
            pickle.dumps(one)
    for one in (store, table, store.batch()):
        for way in (copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="of this process"):
                way(one)
    assert pickle.loads(pickle.dumps(dict(table))) == {b"k": b"v"}
    assert pickle.loads(pickle.dumps(store.info())).path == store.path
    with pytest.raises(TypeError):
        everleaf.Store(store.path)


def test_errors_come_back_from_other_processes(tmp_path):
    for call in (lambda: everleaf.open(tmp_path / "none", "open"), lambda: everleaf.open(tmp_path)):
        with pytest.raises(everleaf.Error) as caught:
            call()
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is type(caught.value) and again.code == caught.value.code
        assert str(again) == str(caught.value) != ""


def test_the_end_of_python_closes(tmp_path):
    program = """
import everleaf, sys
store = everleaf.open(sys.argv[1])
table = store.table("t")
batch, iterator = store.batch(), iter(table.items())
for i in range(300):
    table[b"%d" % i] = b"v"
next(iterator)
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "s"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with everleaf.open(tmp_path / "s", "open") as store:
        assert store.info().clean and len(store.table("t")) == 300


def test_close_while_many_walk(tmp_path):
    store = everleaf.open(tmp_path / "s", domain="process")
    table = store.table("n", int)
    for i in range(20_000):
        table[i] = b"v"
    counted = []

    def work():
        while True:
            try:
                counted.append(len(table))
            except everleaf.ClosedError:
                return

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    while len(counted) < 50:
        pass
    store.close()
    for thread in threads:
        thread.join()
    assert set(counted) == {20_000}
