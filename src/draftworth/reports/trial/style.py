"""What the page of a trial looks like beyond every page of the house."""

CSS = """
:root { --good: #00734f; --good-tint: #effaf5; --flat: #5c656f; }
@media screen and (prefers-color-scheme: dark) { :root { --good: #3cc79c; --good-tint: #10241d; --flat: #9aa4ae; } }
body { padding-top: 1.25rem; }
header { border-top: 5px solid var(--mark); padding-top: 1.1rem; }
header.good { --mark: var(--good); } header.bad { --mark: var(--bad); }
header.flat { --mark: var(--flat); } header.open { --mark: var(--warn); }
h1 { margin-top: .3rem; }
h3 { margin: 0; font-size: .95rem; }
.lede { margin: .5rem 0 0; max-width: 62rem; overflow-wrap: anywhere; }
.answer { display: grid; grid-template-columns: 3fr 2fr; gap: .75rem; margin: 1.1rem 0 0; }
.answer div { padding: .7rem 1rem .8rem; border-radius: 8px; background: var(--tint); }
.answer dt { font-weight: 600; color: var(--soft); font-size: .85rem; }
.answer dd { margin: .1rem 0 0; overflow-wrap: anywhere; }
.answer code, .ended code { color: inherit; font-weight: 600; }
.answer .flags { display: block; margin-top: .25rem; }
header .tiles { margin-top: .9rem; }
.tiles dd span { display: block; overflow-wrap: anywhere; }
section { margin-top: 2.5rem; }
section > h2 { margin: 0 0 .6rem; font-size: 1.25rem; overflow-wrap: anywhere; }
.text { max-width: 62rem; color: var(--soft); margin-bottom: 1rem; overflow-wrap: anywhere; }
.plots { grid-template-columns: repeat(auto-fill, minmax(min(100%, 21.5rem), 1fr)); align-items: start; gap: 2rem; }
.plots + .plots { margin-top: 2rem; }
.panel, figure, .stack { min-width: 0; }
.stack { display: grid; gap: 1.5rem; }
figure { break-inside: avoid; }
figure svg { max-width: 30rem; margin: .5rem 0; }
figcaption { margin: .35rem 0 0; max-width: 30rem; overflow-wrap: anywhere; }
.side { display: grid; gap: 1.25rem 2rem; align-items: start; }
.side > div { min-width: 0; }
.side .words { margin-top: 0; }
.side th, .side td { padding-left: .5rem; padding-right: .5rem; }
.side thead tr:last-child th { white-space: normal; vertical-align: bottom; }
@media (min-width: 64rem) { .side { grid-template-columns: minmax(0, 1fr) minmax(0, 2fr); } }
@media (min-width: 74rem) { .row { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 0 2rem; }
  .row .two { grid-column: span 2; } }
details { margin-top: .4rem; font-size: .9rem; }
details.arm { margin-top: .7rem; font-size: 1em; }
details.arm > summary { font-weight: 600; }
details.arm[open] { padding-bottom: 1rem; }
summary { color: var(--info); cursor: pointer; width: fit-content; max-width: 100%; }
summary:focus-visible { outline: 2px solid var(--info); }
details .scroll { margin-top: .4rem; max-height: 24rem; overflow-y: auto; }
pre { margin: .4rem 0 0; padding: .6rem .8rem; background: var(--tint); border-radius: 6px; white-space: pre-wrap;
  overflow-wrap: anywhere; font: .85rem/1.45 ui-monospace, monospace; }
.plain { margin: .3rem 0 0; padding-left: 1.25rem; } .plain li { margin: .3rem 0; overflow-wrap: anywhere; }
section > h3 { margin-top: 1.4rem; }
.findings li, .left { overflow-wrap: anywhere; }
.words thead tr:last-child th:last-child { text-align: left; }
.words td:last-child { white-space: normal; text-align: left; min-width: 16rem; overflow-wrap: anywhere; }
.words, .plain-table { margin-top: .9rem; } .panel .words { margin-top: 0; }
section > .about { margin: -.3rem 0 .8rem; }
a { color: var(--info); }
@media (max-width: 40rem) { body { padding: 1.1rem 1rem 3rem; font-size: 15px; } h1 { font-size: 1.3rem; }
  .answer { grid-template-columns: 1fr; gap: .5rem; margin-top: .8rem; }
  .answer div { padding: .5rem .8rem .6rem; }
  .words tbody th { white-space: normal; overflow-wrap: anywhere; min-width: 7rem; max-width: 9rem; }
  header .tiles { grid-template-columns: 1fr 1fr; } .tiles div { padding: .5rem .8rem; }
  .tiles b { font-size: 1.1rem; } }
@media print { html { font-size: 12px; } .plots { gap: 1rem 1.5rem; } details { display: none; }
  .plots, .row { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); } .row { gap: 0 1.5rem; }
  .row .two { grid-column: span 2; } .row .plots { grid-template-columns: 1fr; }
  .row .two .plots { grid-template-columns: 1fr 1fr; }
  .side { grid-template-columns: minmax(0, 1fr) minmax(0, 2fr); }
  .panel { break-inside: avoid; } section { margin-top: 1.5rem; } section > h2 { break-after: avoid; } }
"""
