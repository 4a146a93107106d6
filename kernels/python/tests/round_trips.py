"""Round trips of the installed wheel, wrong arguments, threads, and its signatures.

RECODED_SEED repeats a run; the seed is printed.
"""

import ast
import os
import pathlib
import random
import threading
import unittest

import recoded

try:
    import numpy
except ImportError:
    numpy = None

SEED = int(os.environ.get("RECODED_SEED", random.randrange(2**32)))
print(f"RECODED_SEED={SEED} repeats this run", flush=True)


def randoms():
    return random.Random(SEED)


class Rlnc(unittest.TestCase):
    def test_chain_delivers_every_symbol_once_and_as_it_was(self):
        draw = randoms()
        for size, length in [(1, 1), (3, 7), (16, 100), (64, 1400)]:
            data = draw.randbytes(size * length)
            encoder = recoded.Encoder(size, length, seed=draw.getrandbits(64))
            recoder = recoded.Recoder(size, length)
            decoder = recoded.Decoder(size, length)
            for start in range(0, len(data), length):
                encoder.add(data[start : start + length])
            self.assertEqual(encoder.present, size)
            delivered = {}
            while not decoder.is_complete:
                packet = encoder.take()
                if draw.random() < 0.7:
                    recoder.add(*packet)
                if recoder.rank and draw.random() < 0.7:
                    rank = decoder.rank
                    is_innovative = decoder.add(*recoder.take())
                    self.assertEqual(decoder.rank, rank + is_innovative)
                while symbol := decoder.next():
                    self.assertNotIn(symbol[0], delivered)
                    delivered[symbol[0]] = symbol[1]
            self.assertEqual(b"".join(delivered[index] for index in range(size)), data)
            self.assertEqual(decoder.decode(), data)
            self.assertEqual(decoder.symbol(size - 1), data[-length:])
            for node in (encoder, recoder, decoder):
                node.reset()
            self.assertEqual((encoder.present, recoder.rank, decoder.rank), (0, 0, 0))

    def test_buffers_of_the_caller_are_written_in_place(self):
        encoder, decoder = recoded.Encoder(2, 4, seed=1), recoded.Decoder(2, 4)
        encoder.set_systematic(False)
        for symbol in (b"data", memoryview(b"more")):
            encoder.add(symbol)
        vector, symbol = bytearray(2), memoryview(bytearray(8))[2:6]
        while not decoder.is_complete:
            encoder.take_into(vector, symbol)
            decoder.add(vector, symbol)
        data = bytearray(8)
        decoder.decode_into(data)
        self.assertEqual(data, b"datamore")
        data.append(0)  # no buffer is still held

    def test_what_is_missing_raises_not_ready(self):
        encoder, decoder = recoded.Encoder(2, 4), recoded.Decoder(2, 4)
        for call in (encoder.take, recoded.Recoder(2, 4).take, decoder.decode):
            self.assertRaises(recoded.NotReadyError, call)
        self.assertRaises(recoded.NotReadyError, decoder.symbol, 1)
        self.assertRaises(IndexError, decoder.symbol, 2)
        self.assertIsNone(decoder.next())

    def test_wrong_arguments_change_nothing(self):
        for size, length in [(0, 4), (1025, 4), (4, 0)]:
            self.assertRaises(ValueError, recoded.Encoder, size, length)
            self.assertRaises(ValueError, recoded.Decoder, size, length)
        self.assertRaises(OverflowError, recoded.Encoder, -1, 4)
        self.assertRaises(OverflowError, recoded.Encoder, 2, 4, seed=2**64)
        self.assertRaises(MemoryError, recoded.Decoder, 4, 2**62)
        encoder = recoded.Encoder(2, 4)
        for symbol, error in [(b"no", ValueError), ("text", TypeError), (7, TypeError)]:
            self.assertRaises(error, encoder.add, symbol)
        self.assertRaises(BufferError, encoder.add, memoryview(b"striding")[::2])
        self.assertEqual(encoder.present, 0)
        encoder.add(b"data")
        self.assertRaises(BufferError, encoder.take_into, bytes(2), bytearray(4))
        self.assertRaises(ValueError, encoder.take_into, bytearray(3), bytearray(4))
        both = memoryview(bytearray(5))
        self.assertRaises(ValueError, encoder.take_into, both[:2], both[1:])
        self.assertEqual(encoder.take(), (b"\x01\x00", b"data"))


class ReedSolomon(unittest.TestCase):
    def test_any_buffers_recover_the_others(self):
        draw = randoms()
        for _ in range(50):
            data_count, parity_count = draw.randint(1, 20), draw.randint(1, 20)
            code = recoded.ReedSolomon(data_count, parity_count)
            length = draw.randint(1, 500)
            data = [draw.randbytes(length) for _ in range(data_count)]
            buffers = data + code.encode(data)
            into = [bytearray(length) for _ in range(parity_count)]
            code.encode_into(data, into)
            self.assertEqual(buffers[data_count:], [bytes(buffer) for buffer in into])
            ids = draw.sample(range(len(buffers)), len(buffers))
            intact = {id: buffers[id] for id in ids[:data_count]}
            lost = {id: buffers[id] for id in ids[data_count:]}
            self.assertEqual(code.recover(intact, list(lost)), lost)
            places = {id: bytearray(length) for id in lost}
            code.recover_into(intact, places)
            self.assertEqual({id: bytes(place) for id, place in places.items()}, lost)

    def test_wrong_arguments_are_refused(self):
        for data, parity in [(0, 1), (1, 0), (200, 57)]:
            self.assertRaises(ValueError, recoded.ReedSolomon, data, parity)
        code = recoded.ReedSolomon(2, 1)
        self.assertRaises(ValueError, code.encode, [b"ab"])
        self.assertRaises(ValueError, code.encode, [b"ab", b"c"])
        self.assertRaises(TypeError, code.encode, 7)
        intact = {0: b"ab", 1: b"cd"}
        for lost in ([3], [1], [2, 2], [2] * 1000):
            self.assertRaises(ValueError, code.recover, intact, lost)
        self.assertRaises(ValueError, code.recover, {0: b"ab"}, [1])
        self.assertEqual(code.recover(intact, []), {})
        memory = memoryview(bytearray(b"abcd"))
        self.assertRaises(ValueError, code.encode_into, [memory[:2], memory[2:]], [memory[1:3]])


class Threads(unittest.TestCase):
    def test_one_code_serves_several_threads(self):
        code, failures = recoded.ReedSolomon(4, 2), []

        def work(seed):
            draw = random.Random(seed)
            for _ in range(50):
                data = [draw.randbytes(1000) for _ in range(4)]
                parity = code.encode(data)
                intact = {1: data[1], 3: data[3], 4: parity[0], 5: parity[1]}
                if code.recover(intact, [0, 2]) != {0: data[0], 2: data[2]}:
                    failures.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_other_threads_run_while_bytes_are_coded(self):
        code, data = recoded.ReedSolomon(4, 2), [bytes(2**24)] * 4
        counted, is_done = 0, threading.Event()

        def work():
            for _ in range(3):
                code.encode(data)
            is_done.set()

        thread = threading.Thread(target=work)
        thread.start()
        while not is_done.is_set():
            counted += 1
        thread.join()
        self.assertGreater(counted, 100)


@unittest.skipIf(numpy is None, "NumPy is not installed")
class Arrays(unittest.TestCase):
    def test_generation_passes_through_arrays(self):
        source = numpy.random.default_rng(SEED).integers(0, 256, (16, 300), numpy.uint8)
        encoder, decoder = recoded.Encoder(16, 300), recoded.Decoder(16, 300)
        for symbol in source:
            encoder.add(symbol)
        encoder.set_systematic(False)
        vector, symbol = numpy.empty(16, numpy.uint8), numpy.empty(300, numpy.uint8)
        while not decoder.is_complete:
            encoder.take_into(vector, symbol)
            decoder.add(vector, symbol)
        decoded = numpy.empty_like(source)
        decoder.decode_into(decoded)
        numpy.testing.assert_array_equal(decoded, source)
        view = numpy.frombuffer(decoder.decode(), numpy.uint8).reshape(source.shape)
        numpy.testing.assert_array_equal(view, source)

    def test_rows_of_an_array_are_a_stripe(self):
        stripe = numpy.random.default_rng(SEED).integers(0, 256, (14, 999), numpy.uint8)
        code = recoded.ReedSolomon(10, 4)
        code.encode_into(stripe[:10], stripe[10:])
        lost = {id: numpy.empty(999, numpy.uint8) for id in (0, 5, 9, 12)}
        code.recover_into({id: stripe[id] for id in range(14) if id not in lost}, lost)
        for id, buffer in lost.items():
            numpy.testing.assert_array_equal(buffer, stripe[id])
        self.assertRaises(ValueError, code.encode_into, stripe[:10], stripe[9:13])

    def test_other_arrays_are_refused(self):
        encoder = recoded.Encoder(2, 4)
        self.assertRaises(BufferError, encoder.add, numpy.zeros(8, numpy.uint8)[::2])
        for kind in (numpy.int8, numpy.uint16, numpy.float32):
            self.assertRaises(BufferError, encoder.add, numpy.zeros(4, kind))
        fixed = numpy.zeros(4, numpy.uint8)
        encoder.add(fixed)
        fixed.flags.writeable = False
        self.assertRaises(BufferError, encoder.take_into, numpy.zeros(2, numpy.uint8), fixed)


class Signatures(unittest.TestCase):
    def test_stub_names_what_the_module_has(self):
        folder = pathlib.Path(recoded.__file__).parent
        self.assertTrue((folder / "py.typed").exists())
        stub = ast.parse((folder / "__init__.pyi").read_text())
        classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
        self.assertEqual({*classes, "__version__"}, set(recoded.__all__))
        for name, node in classes.items():
            members = {it.name for it in node.body if isinstance(it, ast.FunctionDef)}
            there = {it for it in vars(getattr(recoded, name)) if not it.startswith("__")}
            self.assertEqual(members - {"__new__"}, there if name != "NotReadyError" else set())


if __name__ == "__main__":
    unittest.main()
