"""Which part of each resource of a machine a pipeline takes: at least, and typically."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edge.capacity.platform import HostCosts, Interval, Platform, evidence
from edge.capacity.work import Video, Work
from edge.roofline.bound import ModelBound, bound_of_model
from edge.types import Precision

__all__ = ["Interval", "Loads", "ResourceLoad", "loads_of"]

_YUV_BYTES = 1.5  # of a pixel, as decoders give it
_PASSES = 2  # written by the decoder, read by what scales
_RGB_BYTES = 3
_CANVASES = 2  # one at work, one that is filled
_MIB = 1024 * 1024
_PIXELS_1080P = 1920 * 1080
_BITS = 8
_ROUNDING = 1e-9


_UNKNOWN = Interval()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLoad:
    """One resource."""

    name: str
    unit: str
    used: Interval = _UNKNOWN
    share: Interval = _UNKNOWN  # of what there is, 1 is all; None where one of the two is not known
    note: str | None = None  # what is not known, or what it rests on

    def as_json(self) -> dict[str, Any]:
        return {
            "resource": self.name,
            "unit": self.unit,
            "used": self.used.as_json(),
            "share": self.share.as_json(),
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """All resources of a machine under one pipeline."""

    frames: int  # of a full batch
    batch_s: Interval  # what a full batch takes in the engine
    latency_s: Interval  # from a decoded frame to its detections; typically it has waited for others first
    is_decoder_known: bool  # nothing has to be decoded of which it is not published how much of it fits
    each: tuple[ResourceLoad, ...]

    @property
    def least_share(self) -> float:
        """The highest share of a resource that is used in any case."""
        return max(load.share.least or 0.0 for load in self.each)

    @property
    def is_possible(self) -> bool:
        """Whether no resource is used up in any case."""
        return self.least_share <= 1 + _ROUNDING

    @property
    def typical_share(self) -> float | None:
        """The highest share of a resource that is used typically; None where it is unknown of the engine."""
        if self.batch_s.typical is None:
            return None
        return max(load.share.typical or 0.0 for load in self.each)

    @property
    def first_by_bound(self) -> ResourceLoad:
        """The resource that runs out first, whatever engine runs."""
        return max(self.each, key=lambda load: load.share.least or 0.0)

    @property
    def first(self) -> ResourceLoad:
        """The resource that runs out first: typically, or by the bounds where that is all that is known."""
        if self.batch_s.typical is None:
            return self.first_by_bound
        return max(self.each, key=lambda load: load.share.typical or 0.0)

    def is_served(self, headroom: float) -> bool:
        """Return whether each resource has so much to spare, typically."""
        share = self.typical_share
        return share is not None and share <= 1 - headroom + _ROUNDING


def loads_of(work: Work, platform: Platform) -> Loads | None:
    """Return what a pipeline takes of a machine; None where the machine's peak in its precision is not known.

    Batches are as full as they can be, as they are where the machine has no time to spare.
    """
    full = _batch_of(work.most_frames, work, platform)
    if full is None:
        return None
    maker = _Maker(
        work=work, platform=platform, full=full, mean=_mean_batch(work, platform, full), host=evidence().host
    )
    waited_s = work.max_wait_s if work.most_frames > 1 else 0.0
    typical_s = full.typical_s
    return Loads(
        frames=work.most_frames,
        batch_s=Interval(least=full.least_s, typical=typical_s),
        latency_s=Interval(least=full.least_s, typical=None if typical_s is None else waited_s + typical_s),
        is_decoder_known=not maker.unknown_codecs,
        each=maker.all(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    least_s: float  # what cannot be beaten, even if a model of a fixed batch were given a dynamic one
    typical_s: float | None
    weight_bytes: float
    reread_bytes: float  # of weights that no cache holds
    moved_bytes: float  # where each tensor passes through memory once
    precision: Precision

    def towards(self, other: _Batch, share: float) -> _Batch:
        def between(mine: float, its: float) -> float:
            return mine + share * (its - mine)

        is_known = self.typical_s is not None and other.typical_s is not None
        return _Batch(
            least_s=between(self.least_s, other.least_s),
            typical_s=between(self.typical_s or 0.0, other.typical_s or 0.0) if is_known else None,
            weight_bytes=self.weight_bytes,
            reread_bytes=self.reread_bytes,
            moved_bytes=between(self.moved_bytes, other.moved_bytes),
            precision=self.precision,
        )


def _batch_of(frames: int, work: Work, platform: Platform) -> _Batch | None:
    account = work.model.account(frames)
    bound = bound_of_model(account, platform.machine)
    if bound is None:
        return None
    runs = max(1.0, frames / account.batch)  # of a model that is fixed to fewer frames
    compute_s = sum(one.compute_s for one in bound.layers) / account.batch
    kept_bytes = account.weight_bytes if bound.machine.l2_bytes is None else bound.machine.l2_bytes
    reread_bytes = max(account.weight_bytes - kept_bytes, 0.0)
    least_s = max(frames * compute_s, reread_bytes / bound.machine.bytes_per_s)
    return _Batch(
        least_s=least_s,
        typical_s=_typical_s(bound, platform, runs=runs),
        weight_bytes=account.weight_bytes,
        reread_bytes=reread_bytes,
        moved_bytes=runs * account.moved_bytes,
        precision=account.precision,
    )


def _typical_s(bound: ModelBound, platform: Platform, *, runs: float) -> float | None:
    if platform.factors is None:
        return None
    return runs * max(platform.factors.batch_s(bound.least_s, len(bound.layers)), bound.floor_s)


def _mean_batch(work: Work, platform: Platform, full: _Batch) -> _Batch:
    """Return what a batch takes of as many frames as there are on average."""
    few = min(int(work.frames + _ROUNDING), work.most_frames)
    less = _batch_of(few, work, platform)
    more = full if few + 1 >= work.most_frames else _batch_of(few + 1, work, platform)
    assert less is not None
    assert more is not None
    return less.towards(more, max(work.frames - few, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    work: Work
    platform: Platform
    full: _Batch
    mean: _Batch
    host: HostCosts

    def all(self) -> tuple[ResourceLoad, ...]:
        return self.engine(), self.bandwidth(), self.memory(), self.decoder(), self.processor(), self.network()

    def engine(self) -> ResourceLoad:
        batch_s = Interval(least=self.mean.least_s, typical=self.mean.typical_s)
        share = batch_s.times(self.work.batches_per_s)
        return ResourceLoad(name="GPU", unit="s/s", used=share, share=share, note=self._note_on_engine())

    def _note_on_engine(self) -> str | None:
        if self.platform.factors is None:
            return "no figure that could be used was published of engines on such a machine"
        if self.mean.precision is Precision.FP32:
            return "published figures in FP32 are of TF32, which ours do not use: typical is by FP16 and INT8"
        return None

    def bandwidth(self) -> ResourceLoad:
        video = sum(camera.video.pixels_per_s for camera in self.work.cameras) * _YUV_BYTES * _PASSES
        layers = Interval(least=self.mean.reread_bytes, typical=self.mean.moved_bytes).times(self.work.batches_per_s)
        used = Interval(least=layers.least, typical=(layers.typical or 0.0) + video)
        return self._load("memory bandwidth", "B/s", used, self.platform.machine.bytes_per_s)

    def memory(self) -> ResourceLoad:
        size = self.work.model.spec.preprocess.size
        pixels = self.work.most_frames * size.width * size.height
        least = self.full.weight_bytes + _CANVASES * pixels * _RGB_BYTES
        extra, note = 0.0, "of the card"
        if self.platform.is_jetson:
            extra = self._service_bytes
            note = "without what CUDA and TensorRT take for themselves, which is not published"
        used = Interval(least=least, typical=least + extra)
        return self._load("memory", "B", used, self.platform.memory_bytes, note)

    @property
    def _service_bytes(self) -> float:
        cost = self.host.memory_mib
        streams = sum(camera.video.pixels for camera in self.work.cameras)
        return (cost.base + cost.for_1080p * streams / _PIXELS_1080P) * _MIB

    def decoder(self) -> ResourceLoad:
        if not self.platform.is_jetson:
            return ResourceLoad(name="decoder", unit="s/s", note="the processor decodes")
        loads = [self.platform.decoder_load(camera.video) for camera in self.work.cameras]
        known = [load for load in loads if load is not None]
        share = Interval(least=sum(one.least or 0.0 for one in known), typical=sum(one.typical or 0.0 for one in known))
        note = None
        if self.unknown_codecs:
            note = f"how much {' and '.join(self.unknown_codecs)} this decoder does is not published: not counted"
            share = share if known else _UNKNOWN
        return ResourceLoad(name="decoder", unit="s/s", used=share, share=share, note=note)

    @property
    def unknown_codecs(self) -> list[str]:
        """Return what the decoder has to do; how much of it fits is unknown."""
        videos = [camera.video for camera in self.work.cameras if self.platform.is_jetson]
        return sorted({one.codec for one in videos if one.codec and self.platform.decoder_load(one) is None})

    def processor(self) -> ResourceLoad:
        typical, what = self.work.wanted_fps * self.host.frame_ms.value / 1e3, "reading, NMS and messages"
        if not self.platform.is_jetson:
            typical += sum(self._decoded_s(camera.video) for camera in self.work.cameras)
            what = f"decoding, scaling, {what}"
        note = f"{what}, in cores of an {self.host.cpu}: one of this machine was not measured"
        return ResourceLoad(name="processor", unit="cores", used=Interval(typical=typical), note=note)

    def _decoded_s(self, video: Video) -> float:
        """Return core seconds per second; a codec that was not measured counts as the dearest that was."""
        if video.codec is None:
            return 0.0
        cost = self.host.decode_ms
        pixels_ms = cost.for_1080p.get(video.codec, max(cost.for_1080p.values())) * video.pixels / _PIXELS_1080P
        return video.fps * (cost.frame + pixels_ms) / 1e3

    def network(self) -> ResourceLoad:
        size = self.host.message_bytes
        if not self.work.has_broker:
            return ResourceLoad(name="broker", unit="bit/s", note="the pipeline has none")
        beats = len(self.work.cameras) / self.work.heartbeat_s
        least_per_s = {"all": self.work.wanted_fps, "change": min(beats, self.work.wanted_fps), "nonempty": 0.0}
        full = size.empty + size.objects * size.for_object
        used = Interval(
            least=_BITS * least_per_s[self.work.mode] * size.empty, typical=_BITS * self.work.wanted_fps * full
        )
        note = f"of JSON: from what has to be sent to {size.objects} objects in every frame"
        return ResourceLoad(name="broker", unit="bit/s", used=used, note=note)

    @staticmethod
    def _load(name: str, unit: str, used: Interval, most: float | None, note: str | None = None) -> ResourceLoad:
        share = _UNKNOWN if most is None else used.times(1 / most)
        return ResourceLoad(name=name, unit=unit, used=used, share=share, note=note)
