"""The blocks that today's YOLOs are made of, each with the operators and names that its authors' export has."""


def bottleneck(w, x, out, *, scope, kernels=(3, 3), share=0.5, is_residual=True):
    with w.within(*scope.split("/")):
        inner = w.conv(x, max(1, int(out * share)), kernels[0], scope="cv1")
        made = w.conv(inner, out, kernels[1], scope="cv2")
        return w.add(x, made) if is_residual and x.channels == out else made


def c2f(w, x, out, *, count=1, is_residual=False, share=0.5, one=None):
    """Two halves, the second through `count` blocks, all joined; `one(x, channels, scope)` makes such a block."""
    half = int(out * share)
    parts = w.halves(w.conv(x, 2 * half, scope="cv1"), half, half)
    for number in range(count):
        if one is None:
            parts.append(bottleneck(w, parts[-1], half, scope=f"m.{number}", share=1.0, is_residual=is_residual))
        else:
            parts.append(one(parts[-1], half, f"m.{number}"))
    return w.conv(w.join(*parts), out, scope="cv2")


def c3(w, x, out, *, count=1, is_residual=True, kernels=(1, 3), share=0.5):
    half = int(out * share)
    left = w.conv(x, half, scope="cv1")
    for number in range(count):
        left = bottleneck(w, left, half, scope=f"m/m.{number}", kernels=kernels, share=1.0, is_residual=is_residual)
    return w.conv(w.join(left, w.conv(x, half, scope="cv2")), out, scope="cv3")


def c3k(w, x, out, *, scope):
    with w.within(scope):
        return c3(w, x, out, count=2, kernels=(3, 3))


def c3k2(w, x, out, *, count=1, is_deep=False, share=0.5, has_attention=False):
    def one(y, channels, scope):
        if has_attention:
            with w.within(*scope.split("/")):
                y = bottleneck(w, y, channels, scope=f"{scope}.0")
                with w.within(f"{scope}.1"):
                    return psa_block(w, y)
        return c3k(w, y, channels, scope=scope) if is_deep else bottleneck(w, y, channels, scope=scope)

    return c2f(w, x, out, count=count, share=share, one=one)


def sppf(w, x, out, *, is_new=False):
    """`is_new`: YOLO26's, without an activation in front and with what came in added."""
    half = x.channels // 2
    parts = [w.conv(x, half, scope="cv1", act=None if is_new else "Sigmoid")]
    for number in range(3):
        with w.within("m" if number == 0 else f"m_{number}"):
            parts.append(w.pool(parts[-1], 5))
    made = w.conv(w.join(*parts), out, scope="cv2")
    return w.add(made, x) if is_new else made


def attention(w, x):
    """Queries, keys and values by one convolution; positions by a depthwise one."""
    heads = max(1, x.channels // 64)
    head = x.channels // heads
    key = head // 2
    with w.within("attn"):
        batch, channels, height, width, cells = w.rows, x.channels, x.height, x.width, x.height * x.width
        if w.is_open:
            batch, channels, height, width = w.sizes_of(x.name, 0, 1, 2, 3)
            cells = w.op("Mul", height, width)
        mixed = w.conv(x, heads * (2 * key + head), scope="qkv", act=None)
        q, k, v = w.split(w.shaped(mixed.name, batch, heads, 2 * key + head, cells), key, key, head, axis=2)
        scaled = w.op("Mul", q, w.number(key**-0.5))
        weights = w.op("Softmax", w.op("MatMul", w.op("Transpose", scaled, perm=[0, 1, 3, 2]), k), axis=-1)
        seen = w.op("MatMul", v, w.op("Transpose", weights, perm=[0, 1, 3, 2]))
        seen = w.like(x, w.shaped(seen, batch, channels, height, width))
        values = w.like(x, w.shaped(v, batch, channels, height, width))
        places = w.conv(values, x.channels, 3, group=x.channels, scope="pe", act=None)
        return w.conv(w.add(seen, places), x.channels, scope="proj", act=None, gain=0.4)


def psa_block(w, x):
    x = w.add(x, attention(w, x))
    inner = w.conv(x, 2 * x.channels, scope="ffn/ffn.0")
    return w.add(x, w.conv(inner, x.channels, scope="ffn/ffn.1", act=None, gain=0.4))


def c2psa(w, x, out, *, count=1):
    half = out // 2
    kept, y = w.halves(w.conv(x, 2 * half, scope="cv1"), half, half)
    for number in range(count):
        with w.within("m", f"m.{number}"):
            y = psa_block(w, y)
    return w.conv(w.join(kept, y), out, scope="cv2")


def psa(w, x, out):
    half = out // 2
    kept, y = w.halves(w.conv(x, 2 * half, scope="cv1"), half, half)
    return w.conv(w.join(kept, psa_block(w, y)), out, scope="cv2")


def scdown(w, x, out):
    return w.conv(w.conv(x, out, scope="cv1"), out, 3, stride=2, group=out, scope="cv2", act=None)


def cib(w, x, channels, scope):
    """Depthwise and pointwise in turn; the large kernel has its activation beside it."""
    with w.within(*scope.split("/")):
        y = w.conv(x, channels, 3, group=channels, scope="cv1/cv1.0")
        y = w.conv(y, 2 * channels, scope="cv1/cv1.1")
        y = w.conv(y, 2 * channels, 7, group=2 * channels, scope="cv1/cv1.2")
        y = w.conv(y, channels, scope="cv1/cv1.3")
        return w.add(x, w.conv(y, channels, 3, group=channels, scope="cv1/cv1.4"))


def aconv(w, x, out):
    made = w.op(
        "AveragePool", x.name, ceil_mode=0, count_include_pad=1, kernel_shape=[2, 2], pads=[0] * 4, strides=[1, 1]
    )
    smaller = type(x)(made, x.channels, x.height - 1, x.width - 1)
    return w.conv(smaller, out, 3, stride=2, pad=1, scope="cv1")


def elan1(w, x, out, wide, narrow):
    parts = _sliced(w, w.conv(x, wide, scope="cv1"))
    for scope in ("cv2", "cv3"):
        parts.append(w.conv(parts[-1], narrow, 3, scope=scope))
    return w.conv(w.join(*parts), out, scope="cv4")


def _sliced(w, x):
    return [type(x)(name, x.channels // 2, x.height, x.width) for name in w.chunk(x.name)]


def rep_elan(w, x, out, wide, narrow, count):
    parts = _sliced(w, w.conv(x, wide, scope="cv1"))
    for scope in ("cv2", "cv3"):
        with w.within(scope):
            with w.within(f"{scope}.0"):
                y = c3(w, parts[-1], narrow, count=count, kernels=(3, 3))
            parts.append(w.conv(y, narrow, 3, scope=f"{scope}.1"))
    return w.conv(w.join(*parts), out, scope="cv4")


def spp_elan(w, x, out, narrow):
    parts = [w.conv(x, narrow, scope="cv1")]
    for scope in ("cv2", "cv3", "cv4"):
        with w.within(scope):
            parts.append(w.pool(parts[-1], 5))
    return w.conv(w.join(*parts), out, scope="cv5")


def area_attention(w, x, areas):
    """Cells as a row, in `areas` parts that are images of their own meanwhile."""
    channels, heads = x.channels, max(1, x.channels // 32)
    head = channels // heads
    with w.within("attn"):
        batch, height, width, cells = w.rows, x.height, x.width, x.height * x.width
        if w.is_open:
            batch, height, width = w.sizes_of(x.name, 0, 2, 3)
            cells = w.op("Mul", height, width)
        mixed = w.conv(x, 3 * channels, scope="qkv", act=None).name
        shape, axes = w.op("Shape", mixed), w.const([0])
        front = w.op("Slice", shape, w.const([0]), w.const([2]), axes)
        flat = w.reshape(mixed, w.op("Concat", front, w.const([-1]), axis=0))
        rows = w.op("Transpose", flat, perm=[0, 2, 1])
        parts, each = batch, cells
        if areas > 1:
            parts, each = w.times(batch, areas), w.divided(cells, areas)
            rows = w.shaped(rows, parts, each, 3 * channels)
            if w.is_open:
                parts, each = w.sizes_of(rows, 0, 1)
        mixed = w.op("Transpose", w.shaped(rows, parts, each, heads, 3 * head), perm=[0, 2, 3, 1])
        q, k, v = w.split(mixed, head, head, head, axis=2)
        scaled = w.op("Mul", q, w.number(head**-0.5))
        weights = w.op("Softmax", w.op("MatMul", w.op("Transpose", scaled, perm=[0, 1, 3, 2]), k), axis=-1)
        seen = w.op("MatMul", v, w.op("Transpose", weights, perm=[0, 1, 3, 2]))
        pair = [w.op("Transpose", one, perm=[0, 3, 1, 2]) for one in (seen, v)]
        if areas > 1:
            target = w.divided(parts, areas), w.times(each, areas), channels
            pair = w.shaped_alike(pair, *target)
            batch = w.sizes_of(pair[0], 0)[0] if w.is_open else batch
        pair = w.shaped_alike(
            pair, batch, height, width, channels, then=lambda one: w.op("Transpose", one, perm=[0, 3, 1, 2])
        )
        seen, values = (w.like(x, one) for one in pair)
        places = w.conv(values, channels, 7, group=channels, scope="pe", act=None)
        return w.conv(w.add(seen, places), channels, scope="proj", act=None, gain=0.4)


def a2c2f(w, x, out, *, count, areas):
    """YOLO12's: pairs of area attention, or plain blocks where `areas` is None."""
    half = out // 2
    parts = [w.conv(x, half, scope="cv1")]
    for number in range(count):
        if areas is None:
            parts.append(c3k(w, parts[-1], half, scope=f"m.{number}"))
            continue
        y = parts[-1]
        for position in range(2):
            with w.within(f"m.{number}", f"m.{number}.{position}"):
                y = w.add(y, area_attention(w, y, areas))
                inner = w.conv(y, 2 * half, scope="mlp/mlp.0")
                y = w.add(y, w.conv(inner, half, scope="mlp/mlp.1", act=None, gain=0.4))
        parts.append(y)
    return w.conv(w.join(*parts), out, scope="cv2")
