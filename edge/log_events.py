"""The catalogue of what the services log: a stable id for each event, and what to do. docs/log-events.md is made of it.

A test holds that every line that is logged is in here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["EVENTS", "NOTHING", "LogEvent", "phrase_of"]

_CONVERSION = re.compile(r"%[-#0 +]*[\d.]*[a-zA-Z]")
NOTHING = "nothing"
_REPORT = "report it"
_DISK = "check the disk"
_GPU = "check the GPU"
_SIGN = "push a release of a trusted signer"


class LogEvent(NamedTuple):
    """`id` never changes its meaning; `phrase` is how the line begins, with … for what varies."""

    id: str
    phrase: str
    remedy: str


_ROWS: tuple[tuple[str, str, str], ...] = (
    # cameras and frames
    ("stream-state", "stream …", "`reason` says why; for `down` check camera, network, credential"),
    ("stream-not-clean", "frames are decoded, none is clean yet", "wait for a key frame; shorten the camera's GOP"),
    (
        "stream-teardown-hangs",
        "stream teardown hangs",
        "nothing: reconnected, or left out until a restart (the watchdog's, if no camera is left); report the model",
    ),
    ("annotate-fails", "pictures cannot be written, the run goes on without", "make room for --annotate, --frames"),
    ("stream-ended", "stream ended", "nothing: end of the file"),
    ("clip-sideways", "rotation of the clip is ignored", "rotate its pixels: `ffmpeg -i CLIP UPRIGHT.mp4`"),
    ("stream-failed", "stream failed", "see `reason`; other streams go on"),
    ("stream-does-not-stop", "stream does not stop", "report the camera's model; the service ends all the same"),
    (
        "camera-clock-off",
        "clock of the camera is off, arrival is used",
        "set both clocks (NTP); `off_s` is the difference",
    ),
    ("streams-reloaded", "streams reloaded", NOTHING),
    ("stream-removed", "stream removed", "nothing: gone from the pipeline file"),
    ("reload-refused", "reload refused, all goes on as before", "mend `reason`, reload again"),
    ("reload-nothing", "nothing to reload", "push another release: this one does not change"),
    ("streams-all-ended", "all streams have ended", "nothing: all were files"),
    ("credential-unreadable", "credential cannot be read, the last one is used", "check that secret and its rights"),
    ("streams-not-remembered", "streams file cannot be written", _DISK + "; removed streams may stay retained"),
    ("streams-file-unusable", "streams file cannot be read", "nothing: begun anew; removed streams may stay retained"),
    ("home-assistant-not-kept", "discovery file cannot be written", _DISK + "; old entities may stay"),
    ("home-assistant-unusable", "discovery file cannot be read", "remove old entities in Home Assistant by hand"),
    # inference
    ("engine-chosen", "engine", NOTHING),
    ("engine-of-lesser-kind", "a better engine kind is available", "push again to build it; `note` says why"),
    ("engine-built-anew", "engine is rebuilt", "nothing: `reason` says why"),
    ("engine-build-step", "build …", NOTHING),
    ("engine-fallback-taken", "fallback taken", "see the figures in `reason`; calibrate again for int8"),
    ("boxes-only", "only boxes are used", "nothing: keypoints, masks and angles are not published"),
    ("suppressed-inside", "NMS is inside the model", "export without `nms=True`, or set the thresholds in `reason`"),
    ("inference-does-not-end", "inference does not end", _GPU),
    ("int8-in-float", "int8 is computed in float, at its speed", "fp32, or a CPU with VNNI: docs/engines.md"),
    ("candidates-overflow", "candidates overflow", "raise `score_threshold`: too many cells exceed it"),
    (
        "scores-all-zero",
        "no detection yet, every score is exactly 0",
        "broken INT8: `edge-deploy inspect` names bad Q/DQ pairs; calibrate again, or fp16",
    ),
    ("gpu-left-in-trouble", "CUDA teardown failed, continuing", _GPU),
    ("gpu-context-left-again", "CUDA context could not be left, trying again", _GPU),
    ("gpu-closed-in-trouble", "CUDA engine close failed, continuing", _GPU),
    ("gpu-freed-in-trouble", "CUDA memory could not be freed, continuing", _GPU),
    ("gpu-context-let-go", "CUDA context release failed, continuing", _GPU),
    ("gpu-pycuda-broken", "pycuda cannot be imported, using ctypes", "nothing, or reinstall or remove pycuda"),
    ("tensorrt-route", "tensorrt", NOTHING),
    ("tensorrt-other-route", "TensorRT build failed, trying another way", "nothing: see the build report"),
    ("int8-form", "INT8 form chosen", "nothing: the build report has the times of all forms"),
    ("int8-winner", "INT8 race winner cannot be written", _DISK + "; the next build races again"),
    ("tensorrt-says", "tensorrt: …", "see NVIDIA's documentation"),
    (
        "tensorrt-tactics-skipped",
        "tactics skipped for lack of memory",
        "the engine may be slower: build it while less else runs",
    ),
    ("tensorrt-layer-unknown", "layer to keep in float not found", "calibrate this model again"),
    ("tensorrt-scales-unused", "unused calibration scales", "nothing; if many, the table is of another model"),
    ("tensorrt-not-inspected", "engine inspection failed", NOTHING),
    ("tensorrt-timing-cache", "timing cache cannot be written", _DISK + "; the next build takes longer"),
    ("tensorrt-not-compiled", "compiled kernels are not taken", "nothing: they are compiled again at each start"),
    (
        "tensorrt-no-graph",
        "CUDA graph capture failed, kernels are launched one by one",
        "nothing: more CPU for each batch",
    ),
    # messages
    ("broker", "broker", "`status` has the state; check address, TLS, credential, the broker's log"),
    ("broker-plain-password", "password travels in plain text", "remove `tls: false`; give the broker a certificate"),
    ("broker-answer-not-understood", "publishing failed", _REPORT),
    ("broker-keeps-up", "publishing keeps up again", NOTHING),
    ("broker-too-slow", "…", "send less (`publish.mode`, `max_fps`); a nearer broker; a larger Receive Maximum"),
    ("message-given-up", "message dropped", "raise the broker's message limit, or lower `max_detections`"),
    (
        "message-passed-over",
        "message not acknowledged",
        "later ones are: see the broker's log for this topic; retried after a minute",
    ),
    ("message-of-another-device", "message of another device", "check the broker's access list"),
    ("message-refused", "message refused", "see the broker's reason: ACL, quota, topic"),
    (
        "messages-not-delivered",
        "messages not delivered at shutdown",
        "nothing: sent at the next start, or declared as gaps",
    ),
    ("messages-sent-late", "messages of the last run are sent now", NOTHING),
    ("messages-not-kept", "messages are not kept over a restart", "check /run/edge-runtime: space, rights"),
    ("messages-kept-again", "messages are kept over a restart again", NOTHING),
    ("messages-in-memory-only", "messages are in memory only", "/var/lib/edge-runtime: " + _DISK),
    ("messages-on-disk-again", "messages are kept on the disk again", NOTHING),
    ("messages-not-on-disk", "messages not on disk at shutdown", "they are in /run; " + _DISK),
    ("spool-damaged", "spool is damaged", "nothing: declared as a gap; if it repeats, check the disk"),
    (
        "spool-taken-away",
        "spool file was removed",
        "nothing: declared as a gap; find out what empties /var/lib/edge-runtime",
    ),
    ("spool-failed", "spool failed", _REPORT),
    ("power-loss", "the last run was killed or lost power", "find the crash in the journal, or check the supply"),
    ("jsonl-not-written-at-end", "messages not written at shutdown", "the reader of file or pipe was too slow"),
    ("jsonl-dropped", "lines are dropped", "disk or reader of the pipe is too slow; publish less"),
    ("jsonl-cannot-be-written", "messages cannot be written", _DISK),
    ("jsonl-reader-has-gone", "reader of messages has gone", "start its reader again, then the service"),
    ("output-is-broken", "no output works, stopping", "see the line before"),
    ("epoch-not-kept", "epoch file not written", _DISK + "; numbers stay unique while the clock is right"),
    ("epoch-unusable", "epoch file cannot be read", "nothing: begun anew from the clock"),
    # the machine and the service
    (
        "device-throttled",
        "device throttled",
        "more air, a lower power mode, fewer frames; a stronger supply for over-current",
    ),
    ("device-no-longer-throttled", "device no longer throttled", NOTHING),
    (
        "overloaded",
        "the machine cannot keep up",
        "lower `max_fps`; INT8; a smaller model or input; fewer streams; `priority`",
    ),
    ("engine-measured", "engine measured", "nothing: time of a full batch without decoding"),
    (
        "engine-too-slow",
        "the engine cannot serve what the streams ask for",
        "`reason` says which `max_fps` fits; else as `overloaded`",
    ),
    ("overload-capped", "frame rates are capped", "as `overloaded`; `caps` has the limits in fps: docs/operating.md"),
    (
        "tracking-sparse",
        "too few frames to follow objects",
        "higher `max_fps` or `priority`, or longer `lost_s`: docs/events.md",
    ),
    ("tracking-sparse-stated", "max_fps is low for tracking", "as `tracking-sparse`"),
    ("tracking-dense", "enough frames to follow objects", NOTHING),
    ("overload-over", "frame rates are no longer capped", NOTHING),
    ("no-longer-overloaded", "the machine keeps up again", NOTHING),
    (
        "stream-overloaded",
        "frames of a stream are not inferred",
        "lower `max_fps`, higher `priority`, or as `overloaded`",
    ),
    ("stream-no-longer-overloaded", "frames of a stream are inferred again", NOTHING),
    (
        "threads-hang",
        "threads hang, the watchdog is not fed",
        "nothing: systemd restarts the service; report the names",
    ),
    ("health-not-written", "health file cannot be written", "check /run/edge-runtime: space, rights"),
    ("pull-unreadable", "record of the last pull cannot be read", "`sudo edge-runtime pull` writes it anew"),
    ("pull-not-told", "pull status not published", "correct /etc/edge-deploy/pull.toml as `reason` says"),
    ("state-unreadable", "state of the device cannot be read", "`edge-runtime recover` on the device"),
    ("http-not-served", "http not served", "free the port, or change `http.port`; retried"),
    ("http-failed", "http server failed", _REPORT),
    ("http-request-failed", "http request failed", _REPORT),
    # releases
    (
        "release-unverifiable",
        "release is served though its signature cannot be verified",
        "`provision --signer` restores allowed_signers",
    ),
    ("release-of-former-signer", "release is served though its signer is not trusted any more", _SIGN),
    ("device-name-unknown", "device name cannot be read, topics have the host name", "mend device.toml, then restart"),
    ("release-damaged", "release is damaged", "push it again; check the disk"),
    ("release-not-trusted", "release serves and is not trusted", _SIGN),
    ("release-cannot-serve", "release cannot serve", "`code`: docs/push-codes.md"),
    ("recovery-incomplete", "recovery incomplete", "mend `problem`; then `edge-runtime recover`"),
    ("rollback-not-judged", "failed units cannot be read, a failure is assumed", "`edge-deploy status`"),
    ("unit-not-looked-at", "systemd unit state cannot be read", "`systemctl status edge-runtime`"),
    ("audit-not-written", "audit log cannot be written", _DISK),
    ("software-installed", "software is installed", NOTHING),
    ("software-not-installed", "software is not installed", "see `problem`; bundle the release again"),
    ("software-anew", "software is reinstalled", "nothing; if it repeats, check the disk"),
    ("software-not-kept", "software cannot be kept", _DISK),
    ("trial-nothing", "nothing is on trial", NOTHING),
    ("trial-judged", "trial", "nothing: see `verdict` and `reason`"),
    ("trial-committed", "trial committed", NOTHING),
    ("trial-noted", "trial warning", "compare `what` with before the release"),
    ("trial-refused", "trial refused", "the release before serves; `reason`: docs/push-codes.md"),
    ("trial-refused-before", "trial refused before", "another release, or push with --retry-bad"),
    ("trial-ended-by-others", "trial ended by another process", NOTHING),
)

EVENTS: Mapping[str, LogEvent] = MappingProxyType({row[1]: LogEvent(*row) for row in _ROWS})
"""By phrase."""


def phrase_of(template: str) -> str:
    """Return what a log line says before its first `key=value`, as it stands in the code."""
    text = template
    named = re.search(r"(^|\s)\w+=\"?%", template)
    if named is not None:
        text = template[: named.start()]
    return _CONVERSION.sub("…", text).strip()
