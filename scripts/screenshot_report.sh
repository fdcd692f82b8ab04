#!/bin/sh
# Screenshots of a report as a phone (400 px) and a desktop (1400 px) show it, light and dark, and as it prints:
#   scripts/screenshot_report.sh REPORT.html OUTDIR
# needs Chromium (Debian: apt-get install chromium); CHROMIUM names another program. HEIGHT sets how much of the page is shown.
set -eu
if [ $# -ne 2 ] || [ ! -f "$1" ]; then
  echo "usage: $0 REPORT.html OUTDIR" >&2
  exit 2
fi
report=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
chromium=${CHROMIUM:-chromium}
if ! command -v "$chromium" >/dev/null; then
  echo "$0: no '$chromium': install it (apt-get install chromium) or set CHROMIUM" >&2
  exit 1
fi
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT

# A window of Chromium is at least 500 px wide, so the phone is an <iframe> of 400 px in a page of its own.
frame() {
  printf '<!doctype html><style>body{margin:0}iframe{border:0;width:%spx;height:%spx;display:block}</style><iframe src="file://%s"></iframe>' \
    "$1" "$2" "$report" >"$profile/frame.html"
}

shoot() { # NAME WIDTH HEIGHT [OPTION]
  frame "$2" "$3"
  "$chromium" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$profile/data" \
    --allow-file-access-from-files --window-size="$2,$3" ${4:-} --screenshot="$out/$1.png" "file://$profile/frame.html" >/dev/null 2>&1
  echo "$out/$1.png"
}

dark=--blink-settings=preferredColorScheme=0
light=--blink-settings=preferredColorScheme=1
shoot phone-light 400 "${HEIGHT:-9000}" $light
shoot phone-dark 400 "${HEIGHT:-9000}" $dark
shoot desktop-light 1400 "${HEIGHT:-6500}" $light
shoot desktop-dark 1400 "${HEIGHT:-6500}" $dark
"$chromium" --headless --no-sandbox --disable-gpu --user-data-dir="$profile/data" --no-pdf-header-footer \
  --print-to-pdf="$out/print.pdf" "file://$report" >/dev/null 2>&1
echo "$out/print.pdf"
