#!/usr/bin/env python3
"""Makes what json/secure.json publishes again, in plain Python, from the documents.

Written from docs/internals/tags.md, docs/internals/epochs-of-keys.md, docs/protocol/README.md,
RFC 5869, 7748, 8439, FIPS 197, NIST SP 800-38D, the Noise specification (revision 34) and the paper on SipHash; it shares no code with the crate and needs
nothing but the standard library. Exit status 0, or the first difference.
"""

import hashlib
import hmac
import json
import pathlib
import struct
import sys

# ---- GF(256) modulo x^8 + x^4 + x^3 + x^2 + 1


def multiply(a, b, polynomial=0x11D):
    total = 0
    while b:
        if b & 1:
            total ^= a
        a = a << 1 ^ (polynomial if a & 0x80 else 0)
        b >>= 1
    return total


# ---- AES-128 (FIPS 197)


def sbox():
    table = []
    for x in range(256):
        inverse = next((y for y in range(256) if multiply(x, y, 0x11B) == 1), 0)
        byte = 0x63
        for turn in range(5):
            byte ^= inverse << turn & 0xFF | inverse >> (8 - turn)
        table.append(byte)
    return table


SBOX = sbox()


def round_keys(key):
    words = [list(key[i : i + 4]) for i in range(0, 16, 4)]
    constant = 1
    for i in range(4, 44):
        word = list(words[-1])
        if i % 4 == 0:
            word = [SBOX[x] for x in word[1:] + word[:1]]
            word[0] ^= constant
            constant = multiply(constant, 2, 0x11B)
        words.append([a ^ b for a, b in zip(words[i - 4], word)])
    return [sum(words[i : i + 4], []) for i in range(0, 44, 4)]


def aes(key, block):
    keys = round_keys(key)
    state = [a ^ b for a, b in zip(block, keys[0])]
    for number in range(1, 11):
        state = [SBOX[x] for x in state]
        state = [state[(i + 4 * (i % 4)) % 16] for i in range(16)]
        if number < 10:
            mixed = []
            for column in range(0, 16, 4):
                c = state[column : column + 4]
                for row in range(4):
                    a, b = c[row], c[(row + 1) % 4]
                    rest = c[(row + 2) % 4] ^ c[(row + 3) % 4]
                    mixed.append(multiply(a, 2, 0x11B) ^ multiply(b, 3, 0x11B) ^ rest)
            state = mixed
        state = [a ^ b for a, b in zip(state, keys[number])]
    return bytes(state)


# ---- AES-128-GCM (NIST SP 800-38D) and ChaCha20-Poly1305 (RFC 8439)


def ghash(h, data):
    h, y = int.from_bytes(h, "big"), 0
    for i in range(0, len(data), 16):
        x, v, y = y ^ int.from_bytes(data[i : i + 16], "big"), h, 0
        for bit in range(127, -1, -1):
            if x >> bit & 1:
                y ^= v
            v = v >> 1 ^ (0xE1 << 120 if v & 1 else 0)
    return y.to_bytes(16, "big")


def padded(data):
    return data + bytes(-len(data) % 16)


def exclusive_or(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


def gcm(key, nonce, aad, plain):
    counter = lambda i: aes(key, nonce + struct.pack(">I", i))
    stream = b"".join(counter(i + 2) for i in range((len(plain) + 15) // 16))
    sealed = exclusive_or(plain, stream)
    lengths = struct.pack(">QQ", 8 * len(aad), 8 * len(sealed))
    tag = ghash(aes(key, bytes(16)), padded(aad) + padded(sealed) + lengths)
    return sealed + exclusive_or(tag, counter(1))


def chacha_block(key, counter, nonce):
    start = list(struct.unpack("<16I", b"expand 32-byte k" + key + struct.pack("<I", counter) + nonce))
    state = list(start)
    rotate = lambda x, n: (x << n | x >> (32 - n)) & 0xFFFFFFFF
    quarters = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
    quarters += [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
    for _ in range(10):
        for a, b, c, d in quarters:
            for x, y, z, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                state[x] = (state[x] + state[y]) & 0xFFFFFFFF
                state[z] = rotate(state[z] ^ state[x], n)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(state, start)))


def chacha_poly(key, nonce, aad, plain):
    blocks = range(1, (len(plain) + 63) // 64 + 1)
    sealed = exclusive_or(plain, b"".join(chacha_block(key, i, nonce) for i in blocks))
    once = chacha_block(key, 0, nonce)
    r = int.from_bytes(once[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    data = padded(aad) + padded(sealed) + struct.pack("<QQ", len(aad), len(sealed))
    total = 0
    for i in range(0, len(data), 16):
        total = (total + int.from_bytes(data[i : i + 16] + b"\1", "little")) * r % (2**130 - 5)
    tag = (total + int.from_bytes(once[16:32], "little")) % 2**128
    return sealed + tag.to_bytes(16, "little")


# ---- X25519 (RFC 7748), HKDF (RFC 5869), SipHash-2-4

P = 2**255 - 19


def x25519(scalar, point):
    k = int.from_bytes(scalar, "little") & ~7 & (2**255 - 1) | 2**254
    x1 = int.from_bytes(point, "little") % 2**255
    x2, z2, x3, z3 = 1, 0, x1, 1
    for bit in range(254, -1, -1):
        one = k >> bit & 1
        if one:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        x3, z3 = (d * a + c * b) ** 2 % P, x1 * (d * a - c * b) ** 2 % P
        e = a * a - b * b
        x2, z2 = a * a * b * b % P, e * (a * a + 121665 * e) % P
        if one:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def public(private):
    return x25519(private, b"\x09" + bytes(31))


def extract(salt, secret):
    return hmac.new(salt, secret, hashlib.sha256).digest()


def derive(prk, label, context, length):
    info = b"recoded v2 " + label.encode() + b"\0" + context
    return hmac.new(prk, info + b"\1", hashlib.sha256).digest()[:length]


def siphash(key, data):
    mask = 2**64 - 1
    rotate = lambda x, n: (x << n | x >> (64 - n)) & mask
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D]
    v += [k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rounds(count):
        for _ in range(count):
            v[0] = v[0] + v[1] & mask
            v[2] = v[2] + v[3] & mask
            v[1], v[3] = rotate(v[1], 13) ^ v[0], rotate(v[3], 16) ^ v[2]
            v[0] = rotate(v[0], 32)
            v[2] = v[2] + v[1] & mask
            v[0] = v[0] + v[3] & mask
            v[1], v[3] = rotate(v[1], 17) ^ v[2], rotate(v[3], 21) ^ v[0]
            v[2] = rotate(v[2], 32)

    data += bytes(-(len(data) + 1) % 8) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", data):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return struct.pack("<Q", v[0] ^ v[1] ^ v[2] ^ v[3])


# ---- what recoded makes of them


def column(key, length):
    blocks = (aes(key, i.to_bytes(16, "big")) for i in range((length + 15) // 16))
    return b"".join(blocks)[:length]


def dot(a, b):
    total = 0
    for x, y in zip(a, b):
        total ^= multiply(x, y)
    return total


def carry_less(a, b):
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a, b = a << 1, b >> 1
    return product


def hop_digest(prk, packet):
    packet += bytes(-len(packet) % 16)
    key = column(derive(prk, "hop digest", b"", 16), len(packet))
    words = [m ^ k for (m,), (k,) in zip(struct.iter_unpack("<Q", packet), struct.iter_unpack("<Q", key))]
    total = 0
    for a, b in zip(words[::2], words[1::2]):
        total ^= carry_less(a, b)
    return total.to_bytes(16, "little")


def hop(prk, vector):
    packet = unhex(vector["packet"])
    digest = hop_digest(prk, packet)
    data = struct.pack("<QI", vector["counter"], len(packet))
    data += struct.pack("<HBB", vector["source_port"], vector["key_id"], 0) + digest
    tag = siphash(derive(prk, "hop tag", struct.pack(">H", vector["lane"]), 16), data)
    return packet + struct.pack(">BI", vector["key_id"], vector["counter"] % 2**32) + tag


def masks(seed_prk, unit, index):
    number, block, place = unit["unit"], index // 16, index % 16
    if unit["kind"] == 5:
        number, block, place = (number + index) // 16, 0, (number + index) % 16
    space = struct.pack(">BBHIQ", unit["kind"], unit["shard"], block, unit["flow"], number)
    return aes(derive(seed_prk, "masks", b"", 16), space)[place]


def tags(prk, unit):
    seeds = [derive(prk, "column", bytes([c]), 32) for c in range(unit["columns"])]
    prks = [extract(b"", seed) for seed in seeds]
    factors = [column(derive(one, "factors", b"", 16), 100) for one in prks]
    for index, payload in enumerate(unit["payloads"]):
        vector = unhex(unit["prefix"]) + unhex(payload)
        yield bytes(dot(f, vector) ^ masks(one, unit, index) for f, one in zip(factors, prks))


def bound(prk, symbol):
    tagged = unhex(symbol["tagged"])
    bytes_of_tag = symbol["columns"]
    payload = tagged[:-bytes_of_tag] if symbol["kind"] == 5 else tagged[bytes_of_tag:]
    if symbol["kind"] == 5:
        context = struct.pack(">IHHQ", symbol["number"], symbol["after"], len(tagged), 0)
    else:
        context = unhex(symbol["context"])
    seeds = [derive(prk, "column", bytes([c]), 32) for c in range(bytes_of_tag)]
    prks = [extract(b"", seed) for seed in seeds]
    unit = dict(symbol, unit=symbol["number"])
    tag = bytes(
        dot(column(derive(one, "factors", b"", 16), 200), context + payload)
        ^ masks(one, unit, symbol["index"])
        for one in prks
    )
    return payload + tag if symbol["kind"] == 5 else tag + payload


def combination(unit):
    symbols = [
        unhex(tag) + unhex(unit["prefix"]) + unhex(payload)
        for tag, payload in zip(unit["tags"], unit["payloads"])
    ]
    total = bytearray(max(map(len, symbols)))
    for coefficient, symbol in zip(unhex(unit["vector"]), symbols):
        for i, byte in enumerate(symbol):
            total[i] ^= multiply(coefficient, byte)
    return bytes(total)


def envelope(prk, vector):
    key = derive(prk, "envelope", bytes([vector["suite"]]), 32)
    header = struct.pack(">BQ", vector["key_id"], vector["counter"])
    nonce, aad = bytes(4) + header[1:], header + unhex(vector["bound"])
    seal = {1: lambda *rest: gcm(key[:16], *rest), 2: lambda *rest: chacha_poly(key, *rest)}
    return header + seal[vector["suite"]](nonce, aad, unhex(vector["packet"]))


def report_seal(prk, vector):
    bound = (b"report" + unhex(vector["report"])).hex()
    return envelope(prk, dict(vector, bound=bound, packet=""))


class Noise:
    """The symmetric state of a pattern with X25519, ChaChaPoly and BLAKE2s."""

    def __init__(self, prologue, pattern=b"IKpsk2"):
        name = b"Noise_" + pattern + b"_25519_ChaChaPoly_BLAKE2s"
        # Names of up to a hash are not hashed, but padded.
        short = name + bytes(32 - len(name)) if len(name) <= 32 else None
        self.h = self.ck = short or hashlib.blake2s(name).digest()
        self.mix_hash(prologue)

    def mix_hash(self, data):
        self.h = hashlib.blake2s(self.h + data).digest()

    def hkdf(self, data, count):
        step = lambda key, text: hmac.new(key, text, hashlib.blake2s).digest()
        secret, outputs = step(self.ck, data), [b""]
        for i in range(count):
            outputs.append(step(secret, outputs[-1] + bytes([i + 1])))
        return outputs[1:]

    def mix_key(self, data):
        self.ck, self.key = self.hkdf(data, 2)
        self.counter = 0

    def mix_key_and_hash(self, data):
        self.ck, middle, self.key = self.hkdf(data, 3)
        self.mix_hash(middle)
        self.counter = 0

    def seal(self, plain):
        nonce = bytes(4) + struct.pack("<Q", self.counter)
        sealed = chacha_poly(self.key, nonce, self.h, plain)
        self.counter += 1
        self.mix_hash(sealed)
        return sealed

    def ephemeral(self, key):
        self.mix_hash(key)
        self.mix_key(key)
        return key


def with_mac1(message, pair, receiver, scope):
    key = hashlib.blake2s(b"recoded v2 mac1" + pair + receiver + scope).digest()
    return message + hashlib.blake2s(message, key=key, digest_size=16).digest()


def with_macs(message, pair, receiver, scope):
    return with_mac1(message, pair, receiver, scope) + bytes(16)


def mark(secret, random):
    """The mark of a session's first message."""
    plain = struct.pack(">I", 1) + unhex(random)
    return plain + hashlib.blake2s(plain, key=unhex(secret), digest_size=16).digest()[:8]


def handshake(vector):
    own, peer = unhex(vector["initiator"]), unhex(vector["responder"])
    e, f = (unhex(key) for key in vector["ephemerals"])
    ids, profile, flow = vector["key_ids"], vector["profile"], vector["flow"]
    marks = [mark(*both) for both in zip(vector["mark_secrets"], vector["mark_randoms"])]
    scope = b"hop" if flow is None else b"edge" + struct.pack(">I", flow)
    header = bytes([0x27, 1, ids[0], 0])
    state = Noise(b"recoded v2" + header + scope)
    state.mix_hash(public(peer))
    noise = state.ephemeral(public(e))
    state.mix_key(x25519(e, public(peer)))
    noise += state.seal(public(own))
    state.mix_key(x25519(own, public(peer)))
    noise += state.seal(struct.pack(">QB", vector["stamp"], profile) + marks[0] + bytes(16))
    pair = x25519(own, public(peer))
    initiation = with_macs(header + noise, pair, public(peer), scope)
    noise = state.ephemeral(public(f))
    state.mix_key(x25519(e, public(f)))
    state.mix_key(x25519(own, public(f)))
    state.mix_key_and_hash(unhex(vector["psk"]))
    noise += state.seal(bytes([ids[1], profile]) + marks[1] + bytes(16))
    response = with_macs(bytes([0x27, 2, 0, ids[0]]) + noise, pair, public(own), scope)
    there, back = state.hkdf(b"", 2)
    secrets = extract(state.h, there), extract(state.h, back)
    return initiation, response, *secrets


def one_way(vector):
    psk, opening = unhex(vector["psk"]), unhex(vector["opening"])
    sender, receiver = (public(unhex(vector[name])) for name in ("sender", "receiver"))
    way = b"edge" + vector["flow"].to_bytes(4, "big") + sender + receiver
    key_id = vector["number"] % 128 + 128 * (sender > receiver)
    before = bytes([0x27, 4, key_id, 2]) + opening[4:28]
    key = derive(extract(b"", psk), "opening", way, 32)
    made = before + hashlib.blake2s(before, key=key, digest_size=16).digest()
    return made, extract(before[4:] + way, psk)


def group(vector):
    source, sink = unhex(vector["source"]), public(unhex(vector["sink"]))
    secret, e, opening = (unhex(vector[name]) for name in ("secret", "ephemeral", "opening"))
    flow = struct.pack(">I", vector["flow"])
    way = b"edge" + flow + public(source) * 2
    before = bytes([0x27, 4, 17, 1]) + opening[4:28]
    key = derive(extract(b"", secret), "opening", way, 32)
    opening = before + hashlib.blake2s(before, key=key, digest_size=16).digest()
    head = bytes([0x27, 6, 0, 0]) + opening[20:28]
    state = Noise(b"recoded v2" + head + b"group" + flow, b"K")
    for key in (public(source), sink, public(e)):
        state.mix_hash(key)
    state.mix_key(x25519(e, sink))
    state.mix_key(x25519(source, sink))
    pair = x25519(source, sink)
    message = head + public(e) + state.seal(secret + opening)
    message = with_mac1(message, pair, sink, b"edge" + flow)
    return message, extract(before[4:] + way, secret)


def grant(secret, vector):
    source, relay = unhex(vector["source"]), public(unhex(vector["relay"]))
    e = unhex(vector["ephemeral"])
    # Four in a row, those of the next place behind them.
    first = 4 * vector["place"] % vector["columns"]
    columns = range(first, first + 4)
    each = vector["columns"] // 8
    strict = 0x80 if each == 2 else 0
    epochs = [extract(unhex(salt), secret) for salt in vector["salts"]]
    seeds = [derive(prk, "column", bytes([c]), 32) for prk in epochs for c in columns]
    bits = {c // each for c in columns}
    head = bytes([0x27, 5, strict | len(epochs), sum(1 << bit for bit in bits)])
    head += struct.pack(">Q", vector["stamp"])
    prologue = b"recoded v2" + head + b"columns" + struct.pack(">I", vector["flow"])
    state = Noise(prologue, b"K")
    state.mix_hash(public(source))
    state.mix_hash(relay)
    state.mix_hash(public(e))
    state.mix_key(x25519(e, relay))
    state.mix_key(x25519(source, relay))
    message = head + public(e) + state.seal(b"".join(seeds))
    scope = b"edge" + struct.pack(">I", vector["flow"])
    return with_mac1(message, x25519(source, relay), relay, scope)


def unhex(text):
    return bytes.fromhex(text)


def same(what, made, published):
    if made != unhex(published):
        sys.exit(f"{what}: made {made.hex()}, published {published}")


def main():
    path = pathlib.Path(__file__).parent / "json" / "secure.json"
    document = json.loads(path.read_text())
    prk = extract(unhex(document["salt"]), unhex(document["secret"]))
    same("prk", prk, document["prk"])
    for key in document["keys"]:
        made = derive(prk, key["label"], unhex(key["context"]), len(key["key"]) // 2)
        same(f"key {key['label']}", made, key["key"])
    for number, vector in enumerate(document["hops"]):
        same(f"hop {number}", hop(prk, vector), vector["sealed"])
    for number, unit in enumerate(document["units"]):
        for index, tag in enumerate(tags(prk, unit)):
            same(f"unit {number}, tag {index}", tag, unit["tags"][index])
        same(f"unit {number}, combination", combination(unit), unit["combination"])
    for number, symbol in enumerate(document["symbols"]):
        same(f"symbol {number}", bound(prk, symbol), symbol["tagged"])
    for number, vector in enumerate(document["envelopes"]):
        same(f"envelope {number}", envelope(prk, vector), vector["sealed"])
    for number, vector in enumerate(document["reports"]):
        same(f"report {number}", report_seal(prk, vector), vector["seal"])
    for vector in document["handshakes"]:
        for name, made in zip(("initiation", "response", "there", "back"), handshake(vector)):
            same(name, made, vector[name])
    for name, made in zip(("opening", "secret"), one_way(document["one_way"])):
        same(name, made, document["one_way"][name])
    for name, made in zip(("message", "key"), group(document["group"])):
        same(f"group {name}", made, document["group"][name])
    for vector in document["grants"]:
        same("grant", grant(unhex(document["secret"]), vector), vector["message"])
    print("secure.json: everything made again")


main()
