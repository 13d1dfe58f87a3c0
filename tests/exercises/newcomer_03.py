"""What somebody who solved lab 03 for the first time wrote on the way, and the words that the verdict must hold.

Each once passed, got a wrong cause, or none. `FOUND` lists (exercise, function, words); a word with a leading "-" must
not be there.
"""

from math import prod

# 03.1


def groups_only_in_macs(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    w = kernel**2 * in_channels * out_channels
    return w + bias * out_channels, w * out_height * out_width // groups


def one_bias(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    w = kernel**2 * in_channels * out_channels // groups
    return w + (1 if bias else 0), w * out_height * out_width


# 03.2


def along(batch, image, layers, pool_keeps_input=True, one_key=False):
    kept = {}
    piece, size = 0, 4 * batch * prod(image)
    for i, (kind, shape) in enumerate(layers):
        new = 4 * batch * prod(shape)
        if kind == "conv":
            kept[piece] = size
        elif kind == "batch_norm":
            kept[piece] = size
            kept["stats" if one_key else ("stats", i)] = 8 * shape[0]
        elif kind == "relu":
            kept[i + 1] = new
        elif kind == "relu_in_place":
            kept[piece] = size
        else:
            if pool_keeps_input:
                kept[piece] = size
            kept["index", i] = 2 * new
        if kind != "relu_in_place":
            piece = i + 1
        size = new
    return sum(kept.values())


def pool_keeps_only_places(batch, image, layers):
    # Passed: a ReLU stood before every pool, so that the pool's input was kept anyway.
    return along(batch, image, layers, pool_keeps_input=False)


def statistics_under_one_key(batch, image, layers):
    # Passed: no chain had two batch norms.
    return along(batch, image, layers, one_key=True)


def keyed_by_shape(batch, image, layers):
    kept, extra, prev = set(), 0, tuple(image)
    for kind, shape in layers:
        if kind == "conv":
            kept.add(prev)
        elif kind == "batch_norm":
            kept.add(prev)
            extra += 8 * shape[0]
        elif "relu" in kind:
            kept.add(tuple(shape))
        else:
            kept.add(prev)
            extra += 8 * batch * prod(shape)
        prev = tuple(shape)
    return extra + sum(4 * batch * prod(s) for s in kept)


def statistics_as_numbers(batch, image, layers):
    return along(batch, image, layers) - sum(6 * shape[0] for kind, shape in layers if kind == "batch_norm")


def size_never_updated(batch, image, layers, moves=True):
    kept, piece, size = {}, 0, 4 * batch * prod(image)
    for i, (kind, shape) in enumerate(layers):
        new = 4 * batch * prod(shape)
        if kind == "relu":
            kept[i + 1] = new
        else:
            kept[piece] = size
            if kind == "batch_norm":
                kept["stats", i] = 8 * shape[0]
            elif kind == "max_pool":
                kept["index", i] = 2 * new
        if kind != "relu_in_place" and moves:
            piece = i + 1
        if not moves:
            size = new
    return sum(kept.values())


def piece_never_moved(batch, image, layers):
    return size_never_updated(batch, image, layers, moves=False)


def outputs_of_conv_and_norm(batch, image, layers):
    kept, piece, size = {}, 0, 4 * batch * prod(image)
    for i, (kind, shape) in enumerate(layers):
        new = 4 * batch * prod(shape)
        if kind in ("conv", "batch_norm", "relu"):
            kept[i + 1] = new
        if kind == "relu_in_place":
            kept[piece] = new
        if kind == "batch_norm":
            kept["stats", i] = 8 * shape[0]
        if kind == "max_pool":
            kept[piece] = size
            kept["index", i] = 2 * new
        if kind != "relu_in_place":
            piece = i + 1
        size = new
    return sum(kept.values())


# 03.3


def parts(p, a, optimizer, precision):
    b = 4 if precision == "fp32" else 2
    n = {"sgd": 0, "momentum": 1, "adam": 2}[optimizer]
    return b, n, {"parameters": b * p, "gradients": b * p, "optimizer": 4 * n * p, "activations": b * a}


def sgd_without_master(p, a, optimizer, precision):
    b, n, found = parts(p, a, optimizer, precision)
    return found | {"master": 4 * p if b == 2 and n else 0}


def master_key_missing(p, a, optimizer, precision):
    b, _, found = parts(p, a, optimizer, precision)
    return found | ({"master": 4 * p} if b == 2 else {})


# 03.4


def int_of_quotient(memory_gib, fixed_bytes, image_bytes):
    return int((memory_gib * 2**30 - fixed_bytes) / image_bytes)


def bytes_for_gib(memory_gib, fixed_bytes, image_bytes):
    return int((memory_gib - fixed_bytes) // image_bytes)


# 03.5


def not_rounded_up(layers, input_bytes, kept_bytes):
    return min(range(1, layers + 1), key=lambda k: layers / k * input_bytes + k * kept_bytes)


def rounded_down(layers, input_bytes, kept_bytes):
    return min(range(1, layers + 1), key=lambda k: layers // k * input_bytes + k * kept_bytes)


FOUND = [
    ("03.1", groups_only_in_macs, ["your parameters do not", "-without groups"]),
    ("03.1", one_bias, ["one bias for the whole layer"]),
    ("03.2", pool_keeps_only_places, ["keeps its input as well"]),
    ("03.2", statistics_under_one_key, ["Each batch norm"]),
    ("03.2", keyed_by_shape, ["same shape", "-in-place"]),
    ("03.2", statistics_as_numbers, ["4 bytes"]),
    ("03.2", size_never_updated, ["`size`"]),
    ("03.2", piece_never_moved, ["`piece` never moves"]),
    ("03.2", outputs_of_conv_and_norm, ["*input*"]),
    ("03.3", sgd_without_master, ["plain SGD", "-halve"]),
    ("03.3", master_key_missing, ["0 bytes"]),
    ("03.4", int_of_quotient, ["fewer than 0"]),
    ("03.4", bytes_for_gib, ["counts GiB"]),
    ("03.5", not_rounded_up, ["round up", "-square root"]),
    ("03.5", rounded_down, ["round up", "-square root"]),
]
