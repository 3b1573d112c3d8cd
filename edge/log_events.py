"""The catalogue of what the services log: a stable id for each event, and what to do. docs/log-events.md is made of it.

`python -m edge.log_events docs/log-events.md` writes the page. A test holds that every line that is logged is in here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["EVENTS", "LogEvent", "event_page", "phrase_of"]

_CONVERSION = re.compile(r"%[-#0 +]*[\d.]*[a-zA-Z]")
_NOTHING = "nothing to do"
_REPORT = "report it, with the lines before"
_DISK = "look at the disk: space, rights, and errors in the kernel's journal"
_GPU = "look for errors of the GPU in the kernel's journal; if it repeats, start the service again, then the machine"


class LogEvent(NamedTuple):
    """`id` never changes its meaning; `phrase` is how the line begins, with … for what varies."""

    id: str
    phrase: str
    remedy: str


_ALL = (
    # cameras and frames
    LogEvent("stream-state", "stream …", "`reason` says why; for `down` check camera, network and credential"),
    LogEvent(
        "stream-not-clean", "frames are decoded, none is clean yet", "wait for a key frame; shorten the camera's GOP"
    ),
    LogEvent(
        "stream-teardown-hangs",
        "teardown hangs",
        "the watchdog starts the service again; report it with the camera's model",
    ),
    LogEvent(
        "annotate-fails",
        "annotated frames cannot be written, the run goes on without",
        "make room where --annotate points to, or leave it out; it is tried again with each picture",
    ),
    LogEvent("stream-ended", "stream ended", _NOTHING + ": a file was read to its end"),
    LogEvent(
        "clip-sideways",
        "clip is inferred as it is coded, players turn it",
        "turn the pictures themselves, then use that file: `ffmpeg -i CLIP UPRIGHT.mp4`",
    ),
    LogEvent("stream-failed", "stream failed", "`reason` says what is wrong with this stream; the others go on"),
    LogEvent(
        "stream-does-not-stop",
        "stream does not stop",
        "the service ends all the same; report it with the camera's model",
    ),
    LogEvent(
        "camera-clock-off",
        "clock of the camera is off, arrival is used",
        "set the camera's clock (NTP), or this machine's; `off_s` says how far they are apart",
    ),
    LogEvent("streams-reloaded", "streams reloaded", _NOTHING + ": the pipeline file was read again"),
    LogEvent("stream-removed", "stream removed", _NOTHING + ": it is not in the pipeline file any more"),
    LogEvent(
        "reload-refused", "reload refused, all goes on as before", "mend what `reason` says, then reload or restart"
    ),
    LogEvent("reload-nothing", "nothing to reload", _NOTHING + ": a release does not change; push another one"),
    LogEvent("streams-all-ended", "all streams have ended", _NOTHING + ": all were files"),
    LogEvent(
        "credential-unreadable",
        "credential cannot be read, the last one is used",
        "check the secret of that name and its rights",
    ),
    LogEvent(
        "streams-not-remembered",
        "streams not remembered",
        _DISK + "; streams that are removed may stay retained on the broker",
    ),
    LogEvent(
        "streams-file-unusable",
        "file of streams unusable",
        _NOTHING + ": it is begun anew; streams removed before may stay retained",
    ),
    LogEvent("home-assistant-not-kept", "file not kept", _DISK + "; entities that go may stay in Home Assistant"),
    LogEvent("home-assistant-unusable", "file unusable", "remove entities that went by hand in Home Assistant"),
    # inference
    LogEvent("engine-chosen", "engine", _NOTHING),
    LogEvent(
        "engine-of-lesser-kind",
        "engine of a lesser kind",
        "push again, so that the better kind is built; `note` says why",
    ),
    LogEvent(
        "engine-built-anew",
        "engine is built anew",
        _NOTHING + ": `reason` says what was wrong with the one that was there",
    ),
    LogEvent("engine-build-step", "build …", _NOTHING),
    LogEvent(
        "engine-fallback-taken", "fallback taken", "look at the gate's figures in `reason`; calibrate again for int8"
    ),
    LogEvent("inference-does-not-end", "inference does not end", _GPU),
    LogEvent(
        "int8-in-float", "int8 is computed in float, at its speed", "use fp32, or a CPU with VNNI; docs/engines.md"
    ),
    LogEvent(
        "rows-one-by-one", "rows run one by one", _NOTHING + ", or export the model with a dynamic batch for more speed"
    ),
    LogEvent(
        "candidates-overflow",
        "candidates overflow",
        "raise `score_threshold`: more cells exceed it than there is room for",
    ),
    LogEvent("gpu-left-in-trouble", "leaving the GPU all the same", _GPU),
    LogEvent("gpu-context-left-again", "leaving the GPU's context once more", _GPU),
    LogEvent("gpu-closed-in-trouble", "closing all the same", _GPU),
    LogEvent("tensorrt-route", "tensorrt", _NOTHING),
    LogEvent("tensorrt-says", "tensorrt: …", "TensorRT's own words; docs/engines.md lists known-bad combinations"),
    LogEvent(
        "tensorrt-layer-unknown",
        "not kept in float, no layer has its name:",
        "make the table for this very model again: edge-deploy calibrate",
    ),
    LogEvent(
        "tensorrt-scales-unused",
        "scales that nothing consumes",
        _NOTHING + ", unless many: then the table is of another model",
    ),
    LogEvent("tensorrt-not-inspected", "the plan is not inspected", _NOTHING),
    LogEvent("tensorrt-timing-cache", "timing cache is not kept", _DISK + "; the next build takes longer"),
    LogEvent(
        "tensorrt-canvases-take-turns",
        "the canvases take turns, without CUDA graphs",
        _NOTHING + ", or free memory for more speed",
    ),
    LogEvent(
        "tensorrt-no-graph", "no CUDA graph, every inference is issued singly", _NOTHING + "; it costs CPU per batch"
    ),
    # messages
    LogEvent(
        "broker",
        "broker",
        "`status` says how it stands; when not connected: address, TLS, credential, the broker's log",
    ),
    LogEvent(
        "broker-plain-password",
        "password travels in plain text",
        "leave `tls: false` out, and give the broker a certificate",
    ),
    LogEvent("broker-answer-not-understood", "publishing failed", _REPORT),
    LogEvent("broker-keeps-up", "publishing keeps up again", _NOTHING),
    LogEvent(
        "broker-too-slow", "…", "less to send (`publish.mode`, `max_fps`), a nearer broker, or a larger Receive Maximum"
    ),
    LogEvent(
        "message-given-up", "message given up", "raise the broker's limit of a message, or lower `max_detections`"
    ),
    LogEvent("message-refused", "message refused", "the broker's reason says why: rights (ACL), quota, topic"),
    LogEvent(
        "messages-not-delivered",
        "messages not delivered at the end",
        "was the broker away? They are sent at the next start, or declared as gaps",
    ),
    LogEvent(
        "messages-damaged",
        "messages of the last run are damaged",
        _NOTHING + ": they are declared as a gap; if it repeats, look at the memory",
    ),
    LogEvent("messages-sent-late", "messages of the last run are sent now", _NOTHING),
    LogEvent(
        "messages-not-kept", "messages are not kept over a restart", "look at /run/edge-runtime: space and rights"
    ),
    LogEvent("messages-in-memory-only", "messages are in memory only", "look at /var/lib/edge-runtime: " + _DISK),
    LogEvent("messages-on-disk-again", "messages are kept on the disk again", _NOTHING),
    LogEvent("messages-not-on-disk", "messages are not all on the disk at the end", "they are in /run; " + _DISK),
    LogEvent("messages-on-disk", "messages are on the disk", _NOTHING + ": an earlier run could not send them"),
    LogEvent(
        "messages-on-disk-damaged",
        "messages on the disk are damaged",
        _NOTHING + ": they are declared as a gap; if it repeats, look at the disk",
    ),
    LogEvent(
        "spool-damaged",
        "spool is damaged",
        _NOTHING + ": what is missing is declared as a gap; if it repeats, look at the disk",
    ),
    LogEvent(
        "spool-taken-away",
        "spool was taken away",
        _NOTHING + ": it is there again; find out who removes or replaces files in /var/lib/edge-runtime",
    ),
    LogEvent("spool-failed", "spool failed", _REPORT),
    LogEvent("power-loss", "the last run did not end by itself", "look at the power supply, if nobody pulled the plug"),
    LogEvent(
        "gaps-too-many",
        "gap records are too many to be kept over the process",
        "the broker was away for long: bring it back before a restart",
    ),
    LogEvent(
        "jsonl-not-written-at-end", "messages not written at the end", "who reads the file or pipe did not keep up"
    ),
    LogEvent("jsonl-cannot-be-written", "messages cannot be written", _DISK),
    LogEvent(
        "output-is-broken",
        "nothing that is found can be delivered any more: stopping",
        "see the line before: which output, and why",
    ),
    LogEvent("epoch-not-kept", "epoch not kept", _DISK + "; numbers stay unique while the clock is right"),
    LogEvent("epoch-unusable", "epoch file unusable", _NOTHING + ": begun anew from the clock"),
    # the machine and the service
    LogEvent(
        "device-throttled",
        "device throttled",
        "more air, a lower power mode, fewer frames; for over-current a stronger supply",
    ),
    LogEvent("device-no-longer-throttled", "device no longer throttled", _NOTHING),
    LogEvent(
        "overloaded",
        "the machine cannot keep up",
        "`max_fps` for streams that need fewer frames, INT8, a smaller model or input, fewer streams; `priority` where "
        "batches have fewer rows than there are streams",
    ),
    LogEvent("engine-measured", "engine measured", _NOTHING + ": what a full batch takes, without decoding"),
    LogEvent(
        "engine-too-slow",
        "the engine cannot serve what the streams ask for",
        "`reason` says what would fit: `max_fps`, fewer streams; or INT8, a smaller model or input",
    ),
    LogEvent(
        "overload-capped",
        "frame rates are capped",
        "as for `overloaded`; `caps` are frames per second of the streams that are limited, docs/overload.md",
    ),
    LogEvent(
        "overload-skipping",
        "pictures that no other refers to are not decoded",
        "as for `overloaded`, and less to decode: a smaller stream of the camera, a lower frame rate there",
    ),
    LogEvent("overload-decoding", "all pictures are decoded again", _NOTHING),
    LogEvent("overload-over", "all frames are taken again", _NOTHING),
    LogEvent("no-longer-overloaded", "the machine keeps up again", _NOTHING),
    LogEvent(
        "stream-overloaded",
        "frames of a stream are not inferred",
        "`max_fps` where fewer frames are enough, a higher `priority`, or what helps the machine as a whole",
    ),
    LogEvent("stream-no-longer-overloaded", "frames of a stream are inferred again", _NOTHING),
    LogEvent(
        "threads-hang",
        "threads hang, the watchdog is not fed",
        "systemd starts the service again; report it with the names",
    ),
    LogEvent("health-not-written", "health file cannot be written", "look at /run/edge-runtime: space and rights"),
    LogEvent(
        "pull-not-told", "what was fetched cannot be told", "correct /etc/edge-deploy/pull.toml, as the line says"
    ),
    LogEvent("state-unreadable", "state of the device cannot be read", "run `edge-runtime recover` on the device"),
    LogEvent(
        "http-not-served",
        "http not served",
        "another program has the port: change `http.port`, or stop it; it is tried again",
    ),
    LogEvent("http-failed", "http server failed", _REPORT),
    LogEvent("http-request-failed", "http request failed", _REPORT),
    # releases
    LogEvent(
        "release-unverifiable",
        "release is served though its signature cannot be verified",
        "bring allowed_signers and ssh-keygen back: edge-deploy provision",
    ),
    LogEvent(
        "release-of-former-signer",
        "release is served though its signer is not trusted any more",
        "push a release that is signed by somebody trusted",
    ),
    LogEvent("release-damaged", "release is damaged", "push it again; look for disk errors"),
    LogEvent(
        "release-not-trusted", "release serves and is not trusted", "push a release that is signed by somebody trusted"
    ),
    LogEvent("release-cannot-serve", "release cannot serve", "`code` is in docs/push-codes.md"),
    LogEvent("recovery-incomplete", "recovery incomplete", "`problem` says what is left; then `edge-runtime recover`"),
    LogEvent("rollback-not-judged", "not known whether anything has failed", "run `edge-deploy status`"),
    LogEvent("unit-not-looked-at", "unit cannot be looked at", "does systemd answer? `systemctl status edge-runtime`"),
    LogEvent("audit-not-written", "audit log cannot be written", _DISK),
    LogEvent("software-installed", "software is installed", _NOTHING),
    LogEvent("software-not-installed", "software is not installed", "`problem` says why; bundle the release again"),
    LogEvent("software-anew", "software is installed anew", "`problem` was found; if it repeats, look at the disk"),
    LogEvent("software-not-kept", "software cannot be kept", _DISK),
    LogEvent("trial-nothing", "nothing is on trial", _NOTHING),
    LogEvent("trial-judged", "trial", _NOTHING + ": `verdict` and `reason` say how it stands"),
    LogEvent("trial-committed", "committed", _NOTHING),
    LogEvent("trial-noted", "noted", "`what` was not held against the release; look whether it was so before"),
    LogEvent("trial-refused", "refused", "the release before serves again; `reason` is in docs/push-codes.md"),
    LogEvent("trial-refused-before", "refused already", "push another release, or this one with --retry-bad"),
    LogEvent("trial-ended-by-others", "the trial was ended by somebody else", _NOTHING),
)

EVENTS: Mapping[str, LogEvent] = MappingProxyType({event.phrase: event for event in _ALL})
"""By phrase."""


def phrase_of(template: str) -> str:
    """Return what a log line says before its first `key=value`, as it stands in the code."""
    text = template
    named = re.search(r"(^|\s)\w+=\"?%", template)
    if named is not None:
        text = template[: named.start()]
    return _CONVERSION.sub("…", text).strip()


def event_page() -> str:
    """Return docs/log-events.md."""
    return "\n".join([*_head(), *(f"| `{one.id}` | {one.phrase} | {one.remedy} |" for one in sorted(_ALL)), ""])


def _head() -> Iterator[str]:
    yield "# What the services log"
    yield ""
    yield "Made by `make docs` from `edge/log_events.py`; a test holds that nothing is logged that is not in here."
    yield ""
    yield "A line says what happened, then `key=value`. With `--log json` (or `EDGE_LOG=json` in the service's"
    yield "environment), each line is one JSON object: `ts`, `level`, `event` (the id below, which stays), `text`, the"
    yield "keys of the line such as `stream`, and `repeated`: how many lines of the same event and stream were left out"
    yield "in the minute before. An error that ends the command is still said in words."
    yield ""
    yield "<!-- not run: it takes root -->"
    yield ""
    yield "    sudo systemctl edit edge-runtime     # [Service] Environment=EDGE_LOG=json"
    yield "    journalctl -u edge-runtime -o cat | jq 'select(.event == \"device-throttled\")'"
    yield ""
    yield "| Event | Line | What to do |"
    yield "|---|---|---|"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(event_page(), encoding="utf-8")
