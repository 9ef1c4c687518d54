"""The package as its users see it."""

import array
import dataclasses
import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import everleaf
import pytest
from sortedcontainers import SortedDict


# --- Dictionaries ---


def test_a_table_is_a_dictionary(store):
    table = store.table("t")
    assert len(table) == 0 and not table and list(table) == []
    table[b"b"] = b"2"
    table[b"a"] = bytearray(b"1")
    table[b""] = memoryview(b"")
    assert table[b"a"] == b"1" and table[b""] == b"" and table
    assert list(table) == [b"", b"a", b"b"] and len(table) == 3
    assert list(reversed(table)) == [b"b", b"a", b""]
    assert b"a" in table and b"c" not in table
    assert table.get(b"c") is None and table.get(b"c", 7) == 7
    with pytest.raises(KeyError):
        table[b"c"]
    with pytest.raises(KeyError):
        del table[b"c"]
    assert table.setdefault(b"c", b"3") == b"3" and table.setdefault(b"c", b"4") == b"3"
    assert table.pop(b"c") == b"3" and table.pop(b"c", None) is None
    with pytest.raises(KeyError):
        table.pop(b"c")
    assert table.pop(b"c", default=7) == 7
    with pytest.raises(TypeError):
        table.pop(b"c", 1, 2)
    same = table
    same |= {b"x": b"7"}
    assert same is table and table[b"x"] == b"7"
    table.update([(b"x", b"8")])
    table.update({b"y": b"9"})
    assert table.popitem() == (b"y", b"9") and table.popitem(last=False) == (b"", b"")
    assert table == {b"a": b"1", b"b": b"2", b"x": b"8"}
    assert dict(table) == {b"a": b"1", b"b": b"2", b"x": b"8"}
    table.clear()
    assert len(table) == 0
    with pytest.raises(KeyError):
        table.popitem()


def test_keys_of_integers(store):
    table = store.table("n", int)
    for key in (2**64 - 1, 0, 5):
        table[key] = str(key).encode()
    assert list(table) == [0, 5, 2**64 - 1] and table[5] == b"5"
    assert list(table[1:6].items()) == [(5, b"5")]
    for key in (-1, 2**64):
        with pytest.raises(OverflowError):
            table[key] = b""
    for key in (b"5", "5", 5.0, None):
        with pytest.raises(TypeError):
            table[key]
        with pytest.raises(TypeError):
            table[key:] if key is not None else table.prefix(b"")

    class Number:
        def __index__(self):
            return 5

    assert table[Number()] == b"5" and list(table[Number():]) == [5, 2**64 - 1]
    # Bounds need not be keys.
    for start, stop, keys in ((-1, 2**64, [0, 5, 2**64 - 1]), (-5, 5, [0]), (6, 2**70, [2**64 - 1]),
                              (-9, -1, []), (-9, 0, []), (2**64, None, []), (2**64, 2**65, []),
                              (None, -1, []), (0, 0, []), (2**64 - 1, 2**64, [2**64 - 1])):
        assert list(table[start:stop]) == keys, (start, stop)
        assert list(reversed(table[start:stop])) == keys[::-1]
        assert [key for key in (0, 5, 2**64 - 1) if key in table[start:stop]] == keys


def test_what_is_not_bytes_is_refused(store):
    table = store.table("t")
    for key in ("text", 1, None):
        with pytest.raises(TypeError):
            table[key] = b""
        with pytest.raises(TypeError):
            table[key]
        with pytest.raises(TypeError):
            key in table[b"":]
    with pytest.raises(TypeError):
        table[b"k"] = "text"
    with pytest.raises(TypeError):
        table["a":"b"]
    assert len(table) == 0
    with pytest.raises(TypeError):
        hash(table)


def test_integers_and_lists_are_no_bytes(store):
    """What bytes() would make something of: so many zeros, bytes of numbers."""

    class Odd(bytearray):
        def __bytes__(self):
            return b"something else"

    table, numbers, batch = store.table("t"), store.table("n", int), store.batch()
    table[b"\0\0\0k"] = table[b"ab"] = b"v"
    for wrong in (3, 10**12, True, [97], (97, 98), iter(b"a"), "a", 1.5, None, object()):
        for call in (lambda: table.prefix(wrong), lambda: numbers.prefix(wrong),
                     lambda: table[wrong], lambda: table.get(wrong), lambda: wrong in table,
                     lambda: table.__setitem__(wrong, b""), lambda: table.__setitem__(b"k", wrong),
                     lambda: table.__delitem__(wrong), lambda: table.discard(wrong), lambda: table.pop(wrong),
                     lambda: table.insert(b"k", wrong), lambda: table.insert(wrong, b""),
                     lambda: table.replace(b"ab", wrong), lambda: table.replace(wrong, b""),
                     lambda: table.setdefault(b"k", wrong), lambda: table.setdefault(wrong, b""),
                     lambda: table.compare_and_set(wrong, None, b""),
                     lambda: table.get_into(b"ab", wrong), lambda: table.get_into(wrong, bytearray(1)),
                     lambda: table.update({b"k": wrong}), lambda: wrong in table[b"a":],
                     lambda: batch.put(table, wrong, b""), lambda: batch.put(table, b"k", wrong),
                     lambda: batch.put(numbers, 1, wrong), lambda: batch.erase(table, wrong),
                     lambda: batch.put(wrong, b"k", b""), lambda: batch.erase(wrong, b"k")):
            with pytest.raises(TypeError):
                call()
        if wrong is not None:
            for call in (lambda: table[wrong:], lambda: table[:wrong], lambda: table.items(wrong),
                         lambda: table.__delitem__(slice(wrong)),
                         lambda: table.compare_and_set(b"k", wrong, b""),
                         lambda: table.compare_and_set(b"k", None, wrong)):
                with pytest.raises(TypeError):
                    call()
        if not isinstance(wrong, str):
            for call in (lambda: store.table(wrong), lambda: store.drop_table(wrong),
                         lambda: store.table("t", spec=wrong), lambda: store.backup(wrong),
                         lambda: everleaf.open(wrong), lambda: everleaf.repair(wrong, wrong),
                         lambda: everleaf.repair("s", "t", tables={wrong: bytes})):
                with pytest.raises(TypeError):
                    call()
    assert table == {b"\0\0\0k": b"v", b"ab": b"v"} and len(batch) == 0 and numbers == {}
    for right in (b"a", bytearray(b"a"), memoryview(b"a"), array.array("B", b"a"), Odd(b"a")):
        assert list(table.prefix(right)) == [b"ab"]
        assert table.setdefault(b"default", right) == table.pop(b"default") == b"a"


def test_conditional_writes(store):
    table = store.table("t")
    assert table.insert(b"k", b"1") and not table.insert(b"k", b"2")
    assert table.replace(b"k", b"2") and not table.replace(b"l", b"2")
    assert not table.compare_and_set(b"k", b"1", b"3") and table[b"k"] == b"2"
    assert table.compare_and_set(b"k", b"2", b"3") and table[b"k"] == b"3"
    assert table.compare_and_set(b"l", None, b"0") and not table.compare_and_set(b"l", None, b"1")
    assert table.compare_and_set(b"l", b"0", None) and b"l" not in table
    assert table.discard(b"k") and not table.discard(b"k")


def test_values_come_into_a_buffer(store):
    table = store.table("t")
    table[b"k"] = b"0123456789"
    buffer = bytearray(16)
    assert table.get_into(b"k", buffer) == 10 and buffer[:10] == b"0123456789"
    few = bytearray(4)
    assert table.get_into(b"k", few) == 10 and few == b"0123"
    assert table.get_into(b"l", few) is None
    with pytest.raises(BufferError):
        table.get_into(b"k", b"0123")  # it cannot be written to


# --- Ranges ---


def test_ranges(store):
    table = store.table("t")
    everything = SortedDict()
    for i in range(1000):
        key = b"%05d" % (i * 7919 % 1000)
        table[key] = everything[key] = b"%d" % i
    for start, stop in ((None, None), (b"00100", b"00900"), (b"00500", None), (None, b"00010"),
                        (b"2", b"1"), (b"00128", b"00256")):
        keys = [k for k in everything if (start is None or k >= start) and (stop is None or k < stop)]
        part = table[start:stop]
        assert list(part) == keys and list(part.keys()) == keys and len(part) == len(keys)
        assert list(part.items()) == [(k, everything[k]) for k in keys]
        assert list(part.values()) == [everything[k] for k in keys]
        assert list(reversed(part)) == keys[::-1]
        assert list(reversed(part.values())) == [everything[k] for k in reversed(keys)]
        assert list(table.items(start, stop, reverse=True)) == [
            (k, everything[k]) for k in reversed(keys)]
        assert part.first() == ((keys[0], everything[keys[0]]) if keys else None)
        assert part.last() == ((keys[-1], everything[keys[-1]]) if keys else None)
        assert bool(part) == bool(keys)
    part = table[b"00100":b"00200"]
    assert b"00100" in part and b"00200" not in part and part[b"00150"] == everything[b"00150"]
    with pytest.raises(KeyError):
        part[b"00300"]
    del table[b"00100":b"00200"]
    assert not part and len(table) == 900
    with pytest.raises(ValueError):
        table[::2]


def test_prefixes(store):
    table = store.table("t")
    for key in (b"a", b"ab", b"abc", b"abd", b"b", b"\xff", b"\xff\xff", b"a\xff", b"a\xffz"):
        table[key] = key
    for prefix in (b"", b"a", b"ab", b"a\xff", b"\xff", b"\xff\xff", b"zz"):
        assert list(table.prefix(prefix)) == sorted(k for k in table if k.startswith(prefix))


def test_iterators_live_with_writers(store):
    table = store.table("n", int)
    for key in range(0, 2000, 2):
        table[key] = b""
    seen = []
    for key in table:
        seen.append(key)
        table.discard(max(key - 2, 1))  # behind it
        table[key + 10001] = b""
        if key > 5000:
            break
    assert [k for k in seen if k < 2000] == list(range(0, 2000, 2))


# --- Stores ---


def test_batches(store):
    table, other = store.table("t"), store.table("n", int)
    table[b"gone"] = b""
    with store.batch() as batch:
        batch.put(table, b"k", b"1")
        batch.put(other, 7, b"2")
        batch.erase(table, b"gone")
        assert len(batch) == 3 and b"k" not in table
    assert table == {b"k": b"1"} and other == {7: b"2"}
    with pytest.raises(ZeroDivisionError):
        with store.batch() as batch:
            batch.put(table, b"k", b"3")
            1 / 0
    assert table[b"k"] == b"1"
    assert len(batch) == 0
    with batch:  # again, with nothing of before
        batch.put(table, b"other", b"4")
    assert table == {b"k": b"1", b"other": b"4"}
    with pytest.raises(everleaf.TooLongError), batch:
        batch.put(table, b"x" * 70_000, b"")
        batch.put(table, b"k", b"5")
    assert len(batch) == 0 and table[b"k"] == b"1"
    with everleaf.memory() as stranger, store.batch() as batch:
        with pytest.raises(ValueError):
            batch.put(stranger.table("t"), b"k", b"")


def test_what_was_put_is_there_again(tmp_path):
    with everleaf.open(tmp_path / "s") as store:
        store.table("t")[b"k"] = b"v"
        store.table("n", int)[1] = b"w" * 100000
    with everleaf.open(tmp_path / "s", "open") as store:
        assert store.tables() == {"t": bytes, "n": int}
        assert store.table("t") == {b"k": b"v"} and store.table("n", int)[1] == b"w" * 100000
        with pytest.raises(everleaf.Error):
            store.table("t", int)
        store.drop_table("n")
        assert store.tables() == {"t": bytes}
        with pytest.raises(everleaf.MissingError):
            store.drop_table("n")


def test_errors(tmp_path):
    path = tmp_path / "s"
    with pytest.raises(everleaf.MissingError):
        everleaf.open(path, "open")
    store = everleaf.open(path)
    table = store.table("t")
    with pytest.raises(everleaf.LockedError):
        everleaf.open(path)
    with pytest.raises(everleaf.TooLongError):
        table[b"k" * 65537] = b""
    store.close()
    store.close()
    for use in (lambda: table[b"k"], lambda: len(table), lambda: list(table), store.sync,
                lambda: store.table("t")):
        with pytest.raises(everleaf.ClosedError):
            use()
    assert store.closed and "closed" in repr(store)
    with pytest.raises(everleaf.ExistsError):
        everleaf.open(path, "create")
    with everleaf.open(path, "read_only") as reader:
        with pytest.raises(everleaf.ReadOnlyError):
            reader.table("t")[b"k"] = b""
    text = tmp_path / "text"
    text.write_bytes(b"no store at all, only text" * 1000)
    with pytest.raises(everleaf.CorruptError) as caught:
        everleaf.open(text)
    assert caught.value.code == "not a pool" and isinstance(caught.value, everleaf.Error)
    for wrong in ({"mode": "w"}, {"durability": "some"}, {"domain": "tape"}, {"epoch_seconds": 11}):
        with pytest.raises(ValueError):
            everleaf.open(tmp_path / "new", **wrong)
    assert not (tmp_path / "new").exists()


def test_errors_say_what_to_do(tmp_path):
    with everleaf.open(tmp_path / "s", max_bytes=4 << 20, epoch_seconds=0.001) as store:
        table, gone = store.table("t"), store.table("gone")
        store.drop_table("gone")

        def apply(writes):
            with store.batch() as batch:
                for _ in range(writes):
                    batch.put(table, b"k", b"")

        for call, code, sentence in (
                (lambda: table.insert(b"k" * 65537, b""), "key too long", "65,536 bytes"),
                (lambda: table.insert(b"k", b"v" * 2**28), "value too long", "268,435,455 bytes"),
                (lambda: table.insert(b"k", b"v" * 2**23), "out of space", "max_bytes"),
                (lambda: apply(65537), "batch too large", "65,536 writes or 64 MiB"),
                (lambda: gone.get(b"k"), "dropped", "the table was dropped")):
            with pytest.raises(everleaf.Error, match=sentence) as caught:
                call()
            assert caught.value.code == code
    with everleaf.open(tmp_path / "s", "read_only") as store:
        with pytest.raises(everleaf.ReadOnlyError, match="open it for writing"):
            store.table("t")[b"k"] = b""


def test_a_full_store_refuses_and_stays_readable(tmp_path):
    with everleaf.open(tmp_path / "s", max_bytes=4 << 20, epoch_seconds=0.001) as store:
        table = store.table("t", int)
        with pytest.raises(everleaf.SpaceError):
            for i in range(100000):
                table[i] = b"x" * 1000
        assert len(table) > 100 and all(value == b"x" * 1000 for value in table.values())


@pytest.mark.parametrize("private_bytes", [None, 0, 1 << 20])
def test_on_a_disk_pages_are_copies_or_mapped(tmp_path, private_bytes):
    options = {"domain": "disk", "emulate": True, "private_bytes": private_bytes}
    for value in (b"one", b"two"):
        with everleaf.open(tmp_path / "s", **options) as store:
            store.table("t")[b"key"] = value
            store.sync()
    with everleaf.open(tmp_path / "s", "read_only") as store:
        assert store.table("t")[b"key"] == b"two"
    with pytest.raises(TypeError):
        everleaf.open(tmp_path / "new", private_bytes=-1)


def test_a_value_that_changes_meanwhile_is_whole(store):
    table = store.table("t")
    value, key, stop = bytearray(b"a" * 4000), bytearray(b"key"), threading.Event()

    def change():
        letter = 0
        while not stop.is_set():
            letter = (letter + 1) % 26
            value[:] = bytes([97 + letter]) * len(value)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for n in range(300):
            key[2] = 97 + n % 26
            table[key] = value
    finally:
        stop.set()
        thread.join()
    assert len(table) == 26 and all(len(one) == 4000 for one in table.values())
    assert store.check() == []


def test_one_entry_is_not_copied_with_others(store):
    table = store.table("n", int)
    for i in range(40):
        table[i] = b"x" * 400_000
    assert [key for key, _ in table.items()] == list(range(40))
    assert [len(one) for one in reversed(table.values())] == [400_000] * 40
    assert table.popitem()[0] == 39 and table.popitem(last=False)[0] == 0
    assert list(table) == list(range(1, 39))


def test_backup_and_check(store, tmp_path):
    table = store.table("t")
    for i in range(1000):
        table[b"%d" % i] = b"v%d" % i
    store.backup(tmp_path / "copy")
    table[b"later"] = b""
    assert store.check() == []
    with everleaf.open(tmp_path / "copy", "read_only") as copy:
        assert len(copy.table("t")) == 1000 and copy.table("t")[b"7"] == b"v7"


@pytest.fixture
def ctrl_c():
    """As in a terminal: who runs in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_comes_between_calls(store, tmp_path, ctrl_c):
    table = store.table("n", int)
    table |= {i: b"v" * 100 for i in range(1000)}
    for n in range(10):
        copy = tmp_path / str(n)
        main, began = threading.main_thread().ident, threading.Event()

        def interrupt():
            began.wait()
            signal.pthread_kill(main, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            began.set()
            store.backup(copy)
            thread.join()
        thread.join()
        # It was before the call, or the call did what it does.
        if copy.exists():
            with everleaf.open(copy, "read_only") as whole:
                assert len(whole.table("n", int)) == 1000
        assert len(table) == 1000 and store.check() == []


def test_figures(store, tmp_path):
    table = store.table("t")
    for i in range(1000):
        table[b"%d" % i] = b"v" * 100
    store.sync()
    info = store.info()
    assert info.path == store.path == str(tmp_path / "store") and not info.read_only
    assert 0 < info.block_bytes <= info.heap_bytes <= info.file_bytes == os.stat(info.path).st_size
    assert info.records == 1000 and info.records_waiting == 0
    assert 1000 * 108 <= info.record_bytes_used <= info.record_bytes <= info.block_bytes
    assert info.problems == []
    stats = table.stats()
    assert stats.name == "t" and stats.keys == 1000 and stats.value_bytes == 100_000
    assert json.loads(json.dumps([dataclasses.asdict(one) for one in (info, stats)]))
    with everleaf.memory() as other:
        assert other.info().path is None is other.path and "in memory" in repr(other)


def test_threads_share_a_store(store):
    table = store.table("n", int)
    total = store.table("total")
    total[b"n"] = b"0"

    def work(first):
        for i in range(first, 4000, 4):
            table[i] = b"%d" % i
        for _ in range(200):
            while True:
                now = total[b"n"]
                if total.compare_and_set(b"n", now, b"%d" % (int(now) + 1)):
                    break

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(table) == list(range(4000)) and total[b"n"] == b"800"


def test_close_waits_for_other_threads(tmp_path):
    store = everleaf.open(tmp_path / "s")
    table = store.table("n", int)
    done = []

    def work():
        try:
            for i in range(10**9):
                table[i] = b"x"
                done.append(i)
        except everleaf.ClosedError:
            pass

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(done) < 1000:
        pass
    store.close()
    for thread in threads:
        thread.join()
    with everleaf.open(tmp_path / "s") as again:
        assert len(again.table("n", int)) == len(set(done))


def test_a_child_of_fork_is_refused(store):
    table = store.table("t")
    table[b"k"] = b"v"
    child = os.fork()
    if child == 0:
        try:
            refused = 0
            for use in (lambda: table[b"k"], lambda: list(table), store.sync, store.close,
                        lambda: store.table("t"), lambda: table.__setitem__(b"k", b"w")):
                try:
                    use()
                except everleaf.ForkedError:
                    refused += 1
            del table, store, use
            gc.collect()
            os._exit(refused)
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
    assert table[b"k"] == b"v"
    table[b"k"] = b"w"
    store.sync()
    assert table[b"k"] == b"w"


# What is durable says so on its output; the process dies in the middle.
DURABLE = {
    "sync": ("buffered", "if i % 100 == 99: store.sync(); print(i, flush=True)"),
    "wait": ("buffered", "if i % 100 == 99: store.wait_durable(store.epochs().now); print(i, flush=True)"),
    "strict": ("strict", "print(i, flush=True)"),
}


@pytest.mark.parametrize("way", DURABLE)
def test_nothing_that_is_durable_is_lost(tmp_path, way):
    durability, acknowledge = DURABLE[way]
    program = f"""
import everleaf, sys
store = everleaf.open(sys.argv[1], durability="{durability}", domain="process", epoch_seconds=0.001)
table = store.table("n", int)
for i in range(10**9):
    with store.batch() as batch:
        batch.put(table, 2 * i, b"%d" % i)
        batch.put(table, 2 * i + 1, b"%d" % i)
    {acknowledge}
"""
    path = str(tmp_path / "s")
    process = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE)
    for line in process.stdout:
        durable = int(line)
        if durable >= 2000:
            process.send_signal(signal.SIGKILL)
            break
    rest = process.stdout.read().split(b"\n")[:-1]
    process.wait()
    durable = int(rest[-1]) if rest else durable
    with everleaf.open(path, "open") as store:
        assert not store.info().clean
        table = store.table("n", int)
        keys = list(table)
        assert keys == list(range(len(keys))) and len(keys) % 2 == 0
        assert len(keys) >= 2 * (durable + 1)
        assert all(value == b"%d" % (key // 2) for key, value in table.items())
        assert store.check() == []


def test_epochs(tmp_path):
    with everleaf.open(tmp_path / "s", epoch_seconds=0) as store:
        assert store.epochs() == (0, 0)
        store.wait_durable(0)
        table = store.table("t")
        table[b"k"] = b"v"
        epochs = store.epochs()
        assert epochs.now > epochs.durable
        with pytest.raises(ValueError):
            store.wait_durable(epochs.now + 1)
        store.wait_durable(epochs.now)  # nobody else steps the clock
        assert store.epochs().durable >= epochs.now
        store.sync()
        assert store.epochs().durable > epochs.now
        for wrong in (-1, "1", None, 1.5):
            with pytest.raises(TypeError):
                store.wait_durable(wrong)
    with everleaf.open(tmp_path / "strict", durability="strict") as store:
        store.table("t")[b"k"] = b"v"
        store.wait_durable(store.epochs().now)
        with pytest.raises(ValueError):
            store.wait_durable(1)


def test_other_threads_go_on_while_one_waits(tmp_path):
    with everleaf.open(tmp_path / "s", epoch_seconds=0.2) as store:
        table, waited, counted = store.table("n", int), threading.Event(), 0

        def wait():
            store.wait_durable(store.epochs().now)
            waited.set()

        table[0] = b""
        thread = threading.Thread(target=wait)
        thread.start()
        while not waited.is_set():
            counted += 1
            table[counted] = b""
        thread.join()
        assert counted > 0 and len(table) == counted + 1


# --- Paths and names ---


class Path:
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


def test_paths_of_any_bytes(tmp_path):
    folder = os.fsencode(tmp_path) + b"/\xff\xfe caf\xe9"
    os.mkdir(folder)
    path = folder + b"/\x80.everleaf"
    ways = (path, os.fsdecode(path), Path(path), Path(os.fsdecode(path)), pathlib.Path(os.fsdecode(path)))
    for i, way in enumerate(ways):
        with everleaf.open(way) as store:
            store.table("t")[b"%d" % i] = b"v"
            assert store.path == store.info().path == os.fsdecode(path) and repr(os.fsdecode(path)) in repr(store)
            store.backup(Path(path + b".%d" % i))
            with pytest.raises(everleaf.LockedError) as caught:
                everleaf.open(way)
            assert os.fsdecode(path) in str(caught.value)
    for i in range(len(ways)):
        report = everleaf.repair(path + b".%d" % i, os.fsdecode(path + b".new%d" % i))
        assert report.sound and report.tables[0].read == i + 1
        with everleaf.open(path + b".new%d" % i, "read_only") as store:
            assert len(store.table("t")) == i + 1
    assert len(os.listdir(folder)) == 1 + 2 * len(ways)
    for wrong in (5, None, Path(5)):
        with pytest.raises(TypeError):
            everleaf.open(wrong)
    for nul in ("a\0b", b"a\0b"):
        for call in (everleaf.open, lambda path: everleaf.repair(path, "new"),
                     lambda path: everleaf.repair("new", path), everleaf.memory().backup):
            with pytest.raises(ValueError):
                call(nul)


def test_names_of_any_bytes(store):
    names = ["", "caf\xe9", "\u20ac" * 21, "\udcff\udc80", "a b"]
    for name in names[1:]:
        assert store.table(name).name == name and store.table(name).stats().name == name
    assert sorted(store.tables()) == sorted(names[1:])
    store.drop_table(names[3])
    assert names[3] not in store.tables()
    with pytest.raises(everleaf.MissingError):
        store.drop_table(names[3])
    for wrong in ("x" * 64, names[0]):
        with pytest.raises(everleaf.OptionError):
            store.table(wrong)
    with pytest.raises(UnicodeEncodeError):
        store.table("\ud800")
    for spec in ("nonsense", "bdtree:nonsense=1", "wbtree:node=5"):
        with pytest.raises(ValueError):
            store.table("n", spec=spec)
    with pytest.raises(everleaf.OptionError):
        store.table("a b", int)
    with pytest.raises(TypeError):
        store.table("n", str)


# --- Repair ---


def test_repair(tmp_path):
    path, new = tmp_path / "s", tmp_path / "new"
    content = {b"key %04d" % i: b"value %04d." % i * 40 for i in range(500)}
    with everleaf.open(path, durability="strict", domain="process") as store:
        store.table("words").update(content)
        store.table("lost name", int).update({i: b"n%d" % i for i in range(500)})
        with pytest.raises(everleaf.LockedError):
            everleaf.repair(path, new)
    report = everleaf.repair(path, new)
    assert report.sound and report.problems == []
    assert [(t.name, t.keys, t.read, t.found) for t in report.tables] == [
        ("words", bytes, 500, 0), ("lost name", int, 500, 0)]
    with pytest.raises(everleaf.ExistsError):
        everleaf.repair(path, new)

    file = bytearray(path.read_bytes())
    file[file.index(content[b"key 0100"]) + 7] ^= 1
    name = file.index(b"lost name\0")
    file[name : name + 9] = bytes(9)
    path.write_bytes(file)
    os.remove(new)
    report = everleaf.repair(path, new)
    assert not report.sound and [t.name for t in report.tables] == ["words"] and report.problems
    assert (report.tables[0].read, report.tables[0].damaged_values) == (499, 1)
    assert report.tables[0].problems
    os.remove(new)
    report = everleaf.repair(path, new, tables={"lost name": int})
    (lost,) = [t for t in report.tables if t.name == "lost name"]
    assert (lost.keys, lost.read, lost.found) == (int, 0, 500)
    assert path.read_bytes() == file
    with everleaf.open(new) as store:
        del content[b"key 0100"]
        assert store.table("words") == content and store.check() == []
        assert store.table("lost name", int) == {i: b"n%d" % i for i in range(500)}
    for wrong in ({"n": str}, {"n": "u64"}, {5: int}):
        with pytest.raises(TypeError):
            everleaf.repair(path, tmp_path / "other", tables=wrong)
    with pytest.raises(everleaf.MissingError):
        everleaf.repair(tmp_path / "none", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_damage_is_named(tmp_path):
    path = tmp_path / "s"
    with everleaf.open(path, domain="process") as store:
        store.table("t").update({b"good": b"some value " * 9, b"bad": b"other value " * 9})
    file = bytearray(path.read_bytes())
    file[file.index(b"other value ") + 3] ^= 1
    path.write_bytes(file)
    with everleaf.open(path) as store:
        table = store.table("t")
        for use in (lambda: table[b"bad"], lambda: list(table.items()), lambda: dict(table)):
            with pytest.raises(everleaf.CorruptError):
                use()
        assert table[b"good"] == b"some value " * 9 and b"bad" in table
        assert any("'t'" in problem and "checksum" in problem for problem in store.check())


def test_no_access(tmp_path):
    path = tmp_path / "s"
    everleaf.open(path).close()
    path.chmod(0)
    tmp_path.chmod(0o755)
    who = os.geteuid()
    if who == 0:
        os.seteuid(65534)  # root may read everything
    try:
        with pytest.raises(everleaf.AccessError) as caught:
            everleaf.open(path)
        assert isinstance(caught.value, PermissionError)
    finally:
        os.seteuid(who)
