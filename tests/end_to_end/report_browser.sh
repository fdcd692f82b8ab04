#!/usr/bin/env bash
# A report in headless Chromium, as a phone and a desktop show it, light and dark, and as it prints: no console error, all charts
# drawn, nothing cut off, overlapping, out of the page or too pale. Without Chromium it is skipped (exit 77).
chromium=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}
[ -n "$chromium" ] || { echo "no Chromium: skipped"; exit 77; }
script=$(realpath "$(dirname "$0")/report_browser.js")
source "$(dirname "$0")/common.bash"
prepare_data
write_study
# Long names and five seeds: what a table has to hold at least.
"$program" study study.toml --out study --set seeds='[1, 2, 3, 4, 5]' >out 2>err || { echo "study failed: $(tail -n 1 err)"; exit 1; }

look() { # NAME WIDTH SCHEME(0 dark, 1 light) [#print]
  printf '<!doctype html><style>body{margin:0}iframe{border:0;width:%spx;height:2000px;display:block}</style>
<iframe src="study/report.html"></iframe><pre id="found"></pre><script src="file://%s"></script>' "$2" "$script" > frame.html
  "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" \
    --allow-file-access-from-files --window-size="$(($2 > 500 ? $2 : 500)),2000" --blink-settings=preferredColorScheme="$3" \
    --enable-logging=stderr --virtual-time-budget=20000 --dump-dom "file://$work/frame.html${4:-}" >dom 2>log || fail "$1: Chromium failed"
  sed -n '/<pre id="found">/,/<\/pre>/p' dom > seen
  grep -q '^looked' seen || { fail "$1: the report was not looked at: $(tail -n 3 log)"; return; }
  grep -q '^found' seen && fail "$1: $(grep '^found' seen)"
  grep ':CONSOLE' log && fail "$1: the console has messages"
  sed -n "s/.*\(charts [0-9]*\)/$1: \1/p" seen
}
look phone-light 400 1
look phone-dark 400 0
look desktop-light 1400 1
look desktop-dark 1400 0
look print 720 1 '#print'
finish
