#!/usr/bin/env bash
# Sets up .venv on the distribution's own Python, which alone sees GStreamer's bindings, and the Debian packages.
# Says what it installs. With --require-all a missing part ends it; without, what can be done without it goes on.
set -euo pipefail
cd "$(dirname "$0")/.."

# What runs the product; then what only the tests need.
RUN_PACKAGES=(python3-venv python3-gi python3-gst-1.0 gir1.2-gstreamer-1.0 gir1.2-gst-plugins-base-1.0
  gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad
  gstreamer1.0-plugins-ugly gstreamer1.0-libav)
TEST_PACKAGES=(gir1.2-gst-rtsp-server-1.0 gstreamer1.0-rtsp mosquitto openssl)

require_all=no
packages=("${RUN_PACKAGES[@]}")
if [ "${1:-}" = --require-all ]; then
  require_all=yes
  packages+=("${TEST_PACKAGES[@]}")
fi

# `python3` first on the PATH may be pyenv's or conda's; those do not see the distribution's packages.
python=${EDGE_PYTHON:-/usr/bin/python3}

missing_packages() {
  local name
  for name in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || echo "$name"
  done
}

install_packages() {
  command -v dpkg-query >/dev/null || { echo "setup: this is no Debian or Ubuntu; install GStreamer 1.20 or newer" >&2; return 1; }
  local missing sudo=()
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -eq 0 ] && return 0
  local command="apt-get install -y --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      printf 'setup: these Debian packages are missing, and installing them needs root. Run:\n\n  sudo %s\n\n' "$command" >&2
      return 1
    fi
    sudo=(sudo -n)
  fi
  echo "setup: installing Debian packages: ${missing[*]}"
  # mosquitto comes with a service; the tests start their own.
  local policy=/usr/sbin/policy-rc.d made_policy=no
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null && "${sudo[@]}" chmod +x "$policy" && made_policy=yes
  fi
  local log code=0
  log=$(mktemp)
  { "${sudo[@]}" apt-get update && "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive $command; } >"$log" 2>&1 || code=$?
  [ $made_policy = yes ] && "${sudo[@]}" rm -f "$policy"
  [ $code -eq 0 ] || { tail -n 20 "$log" >&2; echo "setup: apt-get failed" >&2; return 1; }
}

make_venv() {
  [ -x "$python" ] || python=$(command -v python3)
  if [ -x .venv/bin/python ] && [ .venv/.ready -nt setup.cfg ] && [ .venv/.ready -nt pyproject.toml ]; then
    return 0
  fi
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
    || { echo "setup: $python is older than 3.10; set EDGE_PYTHON" >&2; return 1; }
  echo "setup: making .venv on $("$python" --version) and installing edge-deploy[dev] with its libraries from the package index"
  "$python" -m venv --system-site-packages .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
  touch .venv/.ready
}

if ! install_packages; then
  [ $require_all = yes ] && { echo "setup: the tests need the packages above" >&2; exit 1; }
  echo "setup: going on without them; video is decoded by PyAV instead of GStreamer" >&2
fi
make_venv
touch .venv/.ready
