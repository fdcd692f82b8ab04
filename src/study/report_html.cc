#include "study/report_html.h"

#include <cmath>

#include "io/format.h"
#include "study/charts.h"

namespace depthroute {
namespace {

// A table of so many columns is printed smaller: paper does not scroll.
constexpr size_t kWideTable = 7;

}  // namespace

std::string table_html(const Table& table) {
  const std::string caption = escape_html(table.caption);
  // The caption stands outside the scrolling part, or a phone would cut it off. Focusable, so that a keyboard can
  // scroll it.
  std::string html = format_text(
      "<p class=\"caption\">{0}</p><div class=\"scroll{1}\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"{0}\"><table><thead><tr>",
      caption, table.header.size() >= kWideTable ? " wide" : "");
  const auto alignment = [&](size_t column) { return column < table.text_columns ? "" : " class=\"n\""; };
  for (size_t column = 0; column < table.header.size(); ++column) {
    html += format_text("<th scope=\"col\"{}>{}</th>", alignment(column), escape_html(table.header[column]));
  }
  html += "</tr></thead><tbody>";
  for (const std::vector<std::string>& row : table.rows) {
    html += "<tr>";
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string cell = escape_html(row[column]);
      html += column == 0 ? format_text("<th scope=\"row\"{}>{}</th>", alignment(column), cell)
                          : format_text("<td{}>{}</td>", alignment(column), cell);
    }
    html += "</tr>";
  }
  return html + "</tbody></table></div>\n";
}

std::string details_html(std::string_view summary_text, const std::string& html) {
  return format_text("<details><summary>{}</summary>{}</details>\n", escape_html(summary_text), html);
}

std::string paragraph(std::string_view text, std::string_view css_class) {
  if (css_class.empty()) return format_text("<p>{}</p>\n", escape_html(text));
  return format_text("<p class=\"{}\">{}</p>\n", css_class, escape_html(text));
}

std::string list_html(const std::vector<std::string>& texts) {
  std::string html = "<ul>";
  for (const std::string& text : texts) html += format_text("<li>{}</li>", escape_html(text));
  return html + "</ul>\n";
}

std::string section_html(std::string_view id, std::string_view heading_text, const std::string& html) {
  return format_text("<section id=\"{0}\" aria-labelledby=\"{0}-h\"><h2 id=\"{0}-h\">{1}</h2>\n{2}</section>\n", id,
                     escape_html(heading_text), html);
}

std::string figure_html(const std::string& chart_html, std::string_view caption_text) {
  return format_text("<figure>{}<figcaption>{}</figcaption></figure>\n", chart_html, escape_html(caption_text));
}

std::string page_style() {
  return R"css(
:root{--page:#f5f6f8;--card:#fff;--ink:#17202b;--soft:#4f5d6d;--rule:#dfe4ea;--accent:#1f5fbf;--good:#0f6b3d;--good-bg:#e2f4ea;
--bad:#a3261b;--bad-bg:#fbe7e4;--flat:#3f4b59;--flat-bg:#e9edf2;--wait:#7a4a00;--wait-bg:#fdf0d8;
--font:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;--mono:ui-monospace,"SF Mono",Menlo,Consolas,monospace}
@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark;--page:#101318;--card:#181c22;--ink:#e7ecf2;--soft:#a9b4c1;
--rule:#2c333d;--accent:#7db3ff;--good:#7fe0ab;--good-bg:#12301f;--bad:#ffa79d;--bad-bg:#3a1815;--flat:#c3ccd7;--flat-bg:#262d36;
--wait:#f2c46d;--wait-bg:#352708}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.6 var(--font);overflow-wrap:break-word}
.wrap{max-width:1120px;margin:0 auto;padding:0 20px 64px}
header{padding:44px 0 20px}
.kicker{margin:0;color:var(--soft);font-size:.82rem;letter-spacing:.08em;text-transform:uppercase}
h1{margin:.15em 0 .25em;font-size:clamp(1.7rem,1.2rem + 2.4vw,2.6rem);line-height:1.15;letter-spacing:-.02em;font-weight:680}
h2{margin:0 0 .5em;font-size:1.4rem;line-height:1.25;letter-spacing:-.012em;font-weight:660}
h3{margin:1.6em 0 .5em;font-size:1.06rem;line-height:1.35;font-weight:640}
p{margin:.5em 0;max-width:72ch}.soft,figcaption,.lead{color:var(--soft)}.lead{font-size:1.05rem}
a{color:var(--accent);text-underline-offset:.18em}
:focus-visible{outline:2px solid var(--accent);outline-offset:3px;border-radius:4px}
.skip{position:absolute;left:-999px}.skip:focus{left:12px;top:12px;background:var(--card);padding:8px 14px;z-index:1}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:4px 18px;margin:18px 0 0;padding:0;font-size:.92rem}
section{background:var(--card);border:1px solid var(--rule);border-radius:14px;padding:26px 28px;margin:20px 0}
section>h3:first-of-type{margin-top:.9em}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:18px;margin:14px 0}
.verdict{border:1px solid var(--rule);border-left:6px solid var(--tone);border-radius:12px;padding:18px 20px}
.verdict h3{margin:.55em 0 .4em;font-size:1.22rem;line-height:1.3}
.badge{display:inline-block;background:var(--tone-bg);color:var(--tone);font-size:.84rem;font-weight:640;border-radius:99px;padding:2px 12px}
.good{--tone:var(--good);--tone-bg:var(--good-bg)}.bad{--tone:var(--bad);--tone-bg:var(--bad-bg)}
.flat{--tone:var(--flat);--tone-bg:var(--flat-bg)}.wait{--tone:var(--wait);--tone-bg:var(--wait-bg)}
.facts{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:10px 18px;margin:12px 0}
.facts div{min-width:0}.facts dt{color:var(--soft);font-size:.82rem}
.facts dd{margin:0;font-size:1.16rem;font-weight:620;font-variant-numeric:tabular-nums;line-height:1.35}
.verdict p{font-size:.95rem}
.callout{background:var(--wait-bg);color:var(--wait);border-radius:10px;padding:10px 16px;max-width:none}.callout a{color:inherit}
.scroll{overflow-x:auto;margin:12px 0;-webkit-overflow-scrolling:touch}
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}
.caption{color:var(--soft);font-size:.88rem;margin:14px 0 -4px}
th,td{padding:7px 12px;border-bottom:1px solid var(--rule);text-align:left;vertical-align:top}
thead th{font-size:.82rem;color:var(--soft);font-weight:600;vertical-align:bottom;border-bottom-color:var(--soft)}
tbody th{font-weight:600}
th:first-child,td:first-child{padding-left:0}th:last-child,td:last-child{padding-right:0}
.n{text-align:right;white-space:nowrap}thead .n{white-space:normal}tbody th{white-space:nowrap}td{min-width:4.2em}
figure{margin:14px 0;min-width:0}figcaption{font-size:.88rem;margin-top:6px;max-width:68ch}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));gap:10px 30px}
.maps{display:flex;flex-wrap:wrap;gap:4px 40px}.maps figure{max-width:100%;margin:8px 0}.maps figcaption{font-weight:600}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 22px;margin:8px 0;padding:0;font-size:.92rem}
.legend li{display:flex;align-items:center;gap:8px;min-width:0}.legend svg{flex:none}
.scale{display:flex;align-items:center;gap:10px;font-size:.88rem;color:var(--soft)}
details{border-top:1px solid var(--rule);margin-top:10px}
summary{cursor:pointer;padding:9px 0;color:var(--accent);font-size:.92rem}
pre{overflow-x:auto;background:var(--page);border:1px solid var(--rule);border-radius:10px;padding:14px 16px;
font:.84rem/1.5 var(--mono);white-space:pre}
code{font-family:var(--mono);font-size:.9em;overflow-wrap:anywhere}
.terms dt{font-weight:640;margin-top:.8em}.terms dd{margin:0;max-width:72ch;color:var(--soft)}
footer{color:var(--soft);font-size:.88rem;padding-top:8px}
@media (max-width:560px){body{font-size:15.5px}.wrap{padding:0 12px 40px}header{padding:28px 4px 12px}
section{padding:18px 16px;border-radius:12px;margin:14px 0}.verdict{padding:14px 15px}}
@media print{body{background:#fff;font-size:10.5pt}section,.verdict{border-color:#bbb;border-radius:0}section{padding:0;border-width:0 0 1px}
nav,.skip{display:none}figure,.verdict,tr{break-inside:avoid}h2,h3{break-after:avoid}.scroll,pre{overflow:visible}
pre{white-space:pre-wrap}th,td{padding:3px 5px;min-width:0}tbody th{white-space:normal}.legend{break-after:avoid}table{font-size:8.5pt}
.wide table{font-size:6.5pt}.wide th,.wide td{padding:2px 3px;overflow-wrap:anywhere}.wide .n,.wide tbody th{white-space:normal}
details::details-content{content-visibility:visible;block-size:auto}}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
)css";
}

}  // namespace depthroute
