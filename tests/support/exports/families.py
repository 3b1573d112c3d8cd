"""YOLOv5u to YOLO26 as Ultralytics describes them at size n, with a sixteenth of the channels."""

from functools import partial

from tests.support.exports import blocks, heads

UP = ("up",)


def _join(*others):
    return ("join", *others)


def _conv(out, kernel=3, stride=2, pad=None):
    return lambda w, x: w.conv(x, out, kernel, stride=stride, pad=pad, scope="")


def _block(make, *positional, **settings):
    return lambda w, x: make(w, x, *positional, **settings)


def _body(kind):
    """The blocks of the four sizes, those on the way up and down, and what lies between: c is 8, 16, 32, 64."""
    c2f = partial(_block, blocks.c2f)
    if kind == "v5u":
        c3 = partial(_block, blocks.c3)
        plain = partial(c3, is_residual=False)
        return _usual(
            [c3(8), c3(16, count=2), c3(32, count=3), c3(64)], [_block(blocks.sppf, 64)], plain, first=6, is_v5=True
        )
    if kind == "v8":
        deep = partial(c2f, is_residual=True)
        return _usual([deep(8), deep(16, count=2), deep(32, count=2), deep(64)], [_block(blocks.sppf, 64)], c2f)
    if kind == "v10":
        deep, down = partial(c2f, is_residual=True), partial(_block, blocks.scdown)
        last = c2f(64, one=None)
        return [
            _conv(8), _conv(8), deep(8), _conv(16), deep(16, count=2), down(32), deep(32, count=2), down(64), deep(64),
            _block(blocks.sppf, 64), _block(blocks.psa, 64),
            UP, _join(6), c2f(32), UP, _join(4), c2f(16),
            _conv(16), _join(13), c2f(32), down(32), _join(10), _large_kernel(64),
        ], (16, 19, 22)  # fmt: skip
    if kind in ("11", "26"):
        k2 = partial(_block, blocks.c3k2)
        is_new = kind == "26"
        neck = partial(k2, is_deep=is_new)
        last = k2(64, has_attention=True) if is_new else k2(64, is_deep=True)
        return [
            _conv(4), _conv(8), k2(16, share=0.25), _conv(16), k2(32, share=0.25), _conv(32), k2(32, is_deep=True),
            _conv(64), k2(64, is_deep=True), _block(blocks.sppf, 64, is_new=is_new), _block(blocks.c2psa, 64),
            UP, _join(6), neck(32), UP, _join(4), neck(16),
            _conv(16), _join(13), neck(32), _conv(32), _join(10), last,
        ], (16, 19, 22)  # fmt: skip
    if kind == "12":
        k2, a2 = partial(_block, blocks.c3k2), partial(_block, blocks.a2c2f)
        plain = partial(a2, count=1, areas=None)
        return [
            _conv(4), _conv(8), k2(16, share=0.25), _conv(16), k2(32, share=0.25), _conv(32),
            a2(64, count=2, areas=4), _conv(64), a2(64, count=2, areas=1),
            UP, _join(6), plain(32), UP, _join(4), plain(16),
            _conv(16), _join(11), plain(32), _conv(32), _join(8), k2(64, is_deep=True),
        ], (14, 17, 20)  # fmt: skip
    aconv, rep = partial(_block, blocks.aconv), partial(_block, blocks.rep_elan)
    return [
        _conv(4), _conv(8), _block(blocks.elan1, 8, 8, 4), aconv(16), rep(16, 16, 8, 3), aconv(24), rep(24, 24, 12, 3),
        aconv(32), rep(32, 32, 16, 3), _block(blocks.spp_elan, 32, 16),
        UP, _join(6), rep(24, 24, 12, 3), UP, _join(4), rep(16, 16, 8, 3),
        aconv(12), _join(12), rep(24, 24, 12, 3), aconv(16), _join(9), rep(32, 32, 16, 3),
    ], (15, 18, 21)  # fmt: skip


def _usual(sizes, after, neck, *, first=3, is_v5=False):
    """YOLOv5u and YOLOv8: four sizes, SPPF, up twice and down twice."""
    top = [
        _conv(4, first, pad=first // 3),
        _conv(8),
        sizes[0],
        _conv(16),
        sizes[1],
        _conv(32),
        sizes[2],
        _conv(64),
        sizes[3],
        *after,
    ]
    if is_v5:  # a convolution before each step up
        return [
            *top, _conv(32, 1, 1), UP, _join(6), neck(32), _conv(16, 1, 1), UP, _join(4), neck(16),
            _conv(16), _join(14), neck(32), _conv(32), _join(10), neck(64),
        ], (17, 20, 23)  # fmt: skip
    return [
        *top, UP, _join(6), neck(32), UP, _join(4), neck(16),
        _conv(16), _join(12), neck(32), _conv(32), _join(9), neck(64),
    ], (15, 18, 21)  # fmt: skip


def _large_kernel(out):
    return lambda w, x: blocks.c2f(w, x, out, one=lambda y, channels, scope: blocks.cib(w, y, channels, scope))


def levels_of(w, kind):
    """Write backbone and neck of a family, and return the maps of its three levels."""
    steps, ends = _body(kind)
    made, x = [], w.picture
    for number, step in enumerate(steps):
        with w.within(f"model.{number}"):
            if step == UP:
                x = w.doubled(x)
            elif isinstance(step, tuple):
                x = w.join(x, *(made[other] for other in step[1:]))
            else:
                x = step(w, x)
        made.append(x)
    return [made[end] for end in ends], len(steps)


def write(w, kind, *, classes, task="detect", is_end_to_end=False, has_nms=False):
    """Write a model, and return the shapes of its outputs behind the batch."""
    if task == "classify":
        return _classifier(w, kind, classes)
    with w.within(*(["model"] if has_nms else [])):
        levels, number = levels_of(w, kind)
    with w.within(*(["model"] if has_nms else []), f"model.{number}"):
        return heads.detect(
            w,
            levels,
            classes,
            bins=1 if kind == "26" else 16,
            is_light=kind in ("v10", "11", "12", "26"),
            is_end_to_end=is_end_to_end,
            has_nms=has_nms,
            task=task,
        )


def _classifier(w, kind, classes):
    """YOLOv8's and YOLO11's: a backbone, the mean of each channel, one matrix."""
    steps = _body(kind)[0][:9]
    if kind == "11":
        steps.append(_block(blocks.c2psa, 64))
    x = w.picture
    for number, step in enumerate(steps):
        with w.within(f"model.{number}"):
            x = step(w, x)
    with w.within(f"model.{len(steps)}"):
        return heads.classify(w, x, classes)
