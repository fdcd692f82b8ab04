// Runs in a page that holds the report in an <iframe>: what a reader would see as broken, one line each, in <pre id="found">.
// The page's address ends in #print where the report is to be looked at as it prints.
"use strict";

const found = [];
const say = (text) => found.length < 40 && found.push(text);
const short = (element) =>
  `${element.tagName.toLowerCase()} '${(element.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40)}'`;

// Rules for print hold on paper only: this makes them hold here, and those for the screen not.
function show_print(report) {
  for (const sheet of report.styleSheets) {
    for (const rule of sheet.cssRules) {
      if (!(rule instanceof report.defaultView.CSSMediaRule)) continue;
      if (rule.media.mediaText === "print") rule.media.mediaText = "all";
      else if (rule.media.mediaText.startsWith("screen")) rule.media.mediaText = "speech";
    }
  }
}

const visible = (box) => box.width > 0.5 && box.height > 0.5;

// Letters reach beyond neither the chart nor each other. A box is the line's height, more than the letters take.
function check_chart(chart) {
  const name = chart.querySelector("title")?.textContent;
  if (!name) say(`a chart has no title`);
  const frame = chart.getBoundingClientRect();
  if (!visible(frame)) return say(`${name}: the chart is not drawn`);
  if (!chart.querySelector("path,polyline,line,rect,circle,polygon")) say(`${name}: nothing is drawn in the chart`);
  const texts = [...chart.querySelectorAll("text")].map((text) => [text, text.getBoundingClientRect()]);
  for (const [text, box] of texts) {
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2)
      say(`${name}: ${short(text)} is cut off`);
  }
  for (let i = 0; i < texts.length; ++i) {
    for (let j = i + 1; j < texts.length; ++j) {
      const [a, b] = [texts[i][1], texts[j][1]];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > 0.3 * Math.min(a.height, b.height))
        say(`${name}: ${short(texts[i][0])} and ${short(texts[j][0])} overlap`);
    }
  }
}

// Blocks of one parent stand below or beside each other, never on each other.
function check_blocks(report) {
  for (const parent of report.querySelectorAll("main,section,article,figure,dl.facts,.cards,.pair,.maps")) {
    const boxes = [...parent.children].map((child) => [child, child.getBoundingClientRect()]).filter(([, box]) => visible(box));
    for (let i = 0; i + 1 < boxes.length; ++i) {
      const [a, b] = [boxes[i][1], boxes[i + 1][1]];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > 1) say(`${short(boxes[i][0])} and ${short(boxes[i + 1][0])} overlap by ${high.toFixed(1)} px`);
    }
  }
}

function check_width(report) {
  const root = report.documentElement;
  if (root.scrollWidth > root.clientWidth) say(`the page is ${root.scrollWidth} px wide in a window of ${root.clientWidth}`);
  for (const element of report.querySelectorAll("h1,h2,h3,p,li,dd,dt,figcaption,summary,td,th")) {
    const box = element.getBoundingClientRect();
    if (visible(box) && !element.closest(".scroll,pre,svg") && (box.right > root.clientWidth + 1 || box.left < -1))
      say(`${short(element)} reaches out of the page`);
  }
  for (const area of report.querySelectorAll(".scroll")) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(area).overflowX);
    if (area.scrollWidth > area.clientWidth + 1 && visible(area.getBoundingClientRect()) && !scrolls)
      say(`${area.getAttribute("aria-label")}: ${area.scrollWidth} px wide in ${area.clientWidth} and cannot be scrolled`);
  }
}

function luminance([r, g, b]) {
  const linear = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
}
const channels = (colour) => colour.match(/[\d.]+/g).map(Number);

function background(element) {
  for (let at = element; at; at = at.parentElement) {
    const colour = channels(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
}

// WCAG 2: 4.5 to 1 for running text. Numbers on the cells of a heat map (class onN) stand on a colour of their own.
function check_contrast(report) {
  for (const element of report.querySelectorAll("h1,h2,h3,p,li,dd,dt,figcaption,summary,td,th,a,.badge,svg text")) {
    if (!visible(element.getBoundingClientRect()) || /\bon\d/.test(element.getAttribute("class"))) continue;
    const style = getComputedStyle(element);
    const ink = luminance(channels(element.tagName === "text" ? style.fill : style.color));
    const paper = luminance(background(element));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (ratio < 4.5) say(`${short(element)} has a contrast of ${ratio.toFixed(2)}`);
  }
}

addEventListener("load", () => {
  const report = document.querySelector("iframe").contentDocument;
  const print = location.hash === "#print";
  for (const details of report.querySelectorAll("details")) details.open = true;
  if (print) show_print(report);
  const charts = report.querySelectorAll("svg.chart,svg.heat:not([aria-hidden])");
  if (charts.length < 5) say(`only ${charts.length} charts`);
  charts.forEach(check_chart);
  check_blocks(report);
  check_width(report);
  check_contrast(report);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  if (!print && luminance(background(report.body)) < 0.5 !== dark) say("the page does not follow the reader's light or dark");
  document.querySelector("#found").textContent = `charts ${charts.length}\n` + found.map((text) => "found: " + text).join("\n") + "\nlooked";
});
