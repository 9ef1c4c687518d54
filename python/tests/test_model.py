"""Tables beside sortedcontainers: both kinds of keys, both durabilities, closed in the middle."""

import os

import everleaf
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sortedcontainers import SortedDict

VALUES = st.binary(max_size=40)
# Few, so that operations meet; and those at the ends.
KEYS = {
    bytes: st.one_of(st.binary(max_size=2), st.sampled_from([b"\xff", b"\xff\xff", b"a\xff", b"ab"])),
    int: st.one_of(st.integers(0, 40), st.sampled_from([2**32, 2**63, 2**64 - 2, 2**64 - 1])),
}
NAMES = ("t", "other")


def machine_of(kind, durability, folder):
    keys = KEYS[kind]
    bounds = st.one_of(st.none(), keys)
    writes = st.tuples(st.sampled_from(NAMES), keys, st.one_of(st.none(), VALUES))

    class Model(RuleBasedStateMachine):
        number = 0

        @initialize()
        def make(self):
            Model.number += 1
            self.path = folder / str(Model.number)
            self.models = {name: SortedDict() for name in NAMES}
            self.open("create")

        def open(self, mode):
            self.store = everleaf.open(self.path, mode, durability=durability, domain="process")
            self.tables = {name: self.store.table(name, kind) for name in NAMES}
            self.table, self.model = self.tables["t"], self.models["t"]

        @rule(key=keys, value=VALUES)
        def put(self, key, value):
            self.table[key] = self.model[key] = value

        @rule(key=keys, value=VALUES)
        def insert(self, key, value):
            assert self.table.insert(key, value) == (key not in self.model)
            self.model.setdefault(key, value)

        @rule(key=keys, value=VALUES)
        def replace(self, key, value):
            assert self.table.replace(key, value) == (key in self.model)
            if key in self.model:
                self.model[key] = value

        @rule(key=keys, value=VALUES)
        def setdefault(self, key, value):
            assert self.table.setdefault(key, value) == self.model.setdefault(key, value)

        @rule(key=keys, right=st.booleans(), other=st.one_of(st.none(), VALUES),
              desired=st.one_of(st.none(), VALUES))
        def compare_and_set(self, key, right, other, desired):
            expected = self.model.get(key) if right else other
            happens = expected == self.model.get(key)
            assert self.table.compare_and_set(key, expected, desired) == happens
            if happens and desired is None:
                self.model.pop(key, None)
            elif happens:
                self.model[key] = desired

        @rule(key=keys)
        def pop(self, key):
            assert self.table.pop(key, None) == self.model.pop(key, None)

        @rule(key=keys)
        def discard(self, key):
            assert self.table.discard(key) == (self.model.pop(key, None) is not None)

        @precondition(lambda self: self.model)
        @rule(last=st.booleans())
        def popitem(self, last):
            assert self.table.popitem(last) == self.model.popitem(-1 if last else 0)

        @rule(key=keys)
        def get(self, key):
            assert self.table.get(key) == self.model.get(key)
            assert (key in self.table) == (key in self.model)
            buffer = bytearray(40)
            length = self.table.get_into(key, buffer)
            assert (None if length is None else buffer[:length]) == self.model.get(key)

        @rule(start=bounds, stop=bounds, key=keys)
        def slices(self, start, stop, key):
            wanted = [(k, self.model[k]) for k in self.model.irange(start, stop, (True, False))]
            part = self.table[start:stop]
            assert list(part.items()) == wanted and len(part) == len(wanted)
            assert list(part) == [k for k, _ in wanted] == list(reversed(part))[::-1]
            assert list(reversed(part.items())) == wanted[::-1]
            assert list(self.table.items(start, stop, reverse=True)) == wanted[::-1]
            assert list(part.values()) == [v for _, v in wanted]
            assert part.first() == (wanted[0] if wanted else None)
            assert part.last() == (wanted[-1] if wanted else None)
            assert (key in part) == (key in dict(wanted)) and part.get(key) == dict(wanted).get(key)

        @rule(start=keys, stop=keys)
        def erase_a_slice(self, start, stop):
            del self.table[start:stop]
            for key in list(self.model.irange(start, stop, (True, False))):
                del self.model[key]

        if kind is bytes:

            @rule(prefix=keys)
            def prefix(self, prefix):
                assert list(self.table.prefix(prefix).items()) == [
                    (k, v) for k, v in self.model.items() if k.startswith(prefix)]

        # An iterator that sees a write behind each step: what stays is met once, in order.
        @rule(written=st.lists(st.tuples(keys, st.one_of(st.none(), VALUES)), max_size=6),
              reverse=st.booleans())
        def iterate_meanwhile(self, written, reverse):
            stay = set(self.model) - {key for key, _ in written}
            come = {key for key, _ in written}
            seen = []
            for key in reversed(self.table) if reverse else self.table:
                seen.append(key)
                if written:
                    where, value = written.pop()
                    if value is None:
                        self.table.discard(where)
                        self.model.pop(where, None)
                    else:
                        self.table[where] = self.model[where] = value
            assert seen == sorted(set(seen), reverse=reverse)
            assert stay <= set(seen) <= stay | come

        @rule(writes=st.lists(writes, max_size=9), fails=st.booleans())
        def batch(self, writes, fails):
            try:
                with self.store.batch() as batch:
                    for name, key, value in writes:
                        if value is None:
                            batch.erase(self.tables[name], key)
                        else:
                            batch.put(self.tables[name], key, value)
                    assert len(batch) == len(writes)
                    if fails:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                return
            for name, key, value in writes:
                if value is None:
                    self.models[name].pop(key, None)
                else:
                    self.models[name][key] = value

        @rule(entries=st.dictionaries(keys, VALUES, max_size=5))
        def update(self, entries):
            self.table |= entries
            self.model.update(entries)

        @rule()
        def wait(self):
            now = self.store.epochs().now
            self.store.wait_durable(now)
            assert self.store.epochs().durable >= now

        @rule()
        def drop(self):
            self.store.drop_table("other")
            assert list(self.store.tables()) == ["t"]
            with pytest.raises(everleaf.ClosedError):
                len(self.tables["other"])
            self.tables["other"] = self.store.table("other", kind)
            self.models["other"].clear()

        @rule()
        def reopen(self):
            self.store.close()
            self.open("open")

        @rule()
        def back_up_and_go_on_with_the_copy(self):
            copy = self.path.with_suffix(".copy")
            self.store.backup(copy)
            self.store.close()
            os.replace(copy, self.path)
            self.open("open")

        @invariant()
        def same(self):
            for name in NAMES:
                assert len(self.tables[name]) == len(self.models[name])

        def teardown(self):
            for name in NAMES:
                assert list(self.tables[name].items()) == list(self.models[name].items())
            assert self.store.check() == []
            self.store.close()
            os.remove(self.path)

    return Model


@pytest.mark.parametrize("durability", ["buffered", "strict"])
@pytest.mark.parametrize("kind", [bytes, int], ids=["bytes", "u64"])
def test_model(kind, durability, tmp_path):
    case = machine_of(kind, durability, tmp_path).TestCase
    case.settings = settings(max_examples=15, stateful_step_count=30, deadline=None, database=None)
    case().runTest()
