"""HTML that plays a backward pass on the picture of its graph, for viz.backward: buttons, arrow keys, a slider.

Self-contained: the steps are data of a short script, which writes text by `textContent` only.  Each player has an id of
its own, and the script looks for it once, so that several share a page, and a cell's output that is shown twice works
twice.  Without scripts (a notebook that is not trusted) the picture and the steps as text are there.
"""

import json
import secrets
from html import escape
from typing import Any

from .svg import STYLE

_STYLE = """
.xgrad-steps{color:var(--xv-ink);font:13px/1.4 Helvetica,Arial,sans-serif;outline-offset:2px}
.xgrad-steps .xs-bar{display:flex;gap:6px;align-items:center;margin:0 0 8px;flex-wrap:wrap}
.xgrad-steps button{font:inherit;color:inherit;background:var(--xv-block);border:1px solid var(--xv-line);
border-radius:5px;padding:2px 10px;cursor:pointer}
.xgrad-steps button:disabled{opacity:.4;cursor:default}
.xgrad-steps input{flex:0 1 220px}
.xgrad-steps .xs-view{display:flex;gap:16px;flex-wrap:wrap;align-items:flex-start}
.xgrad-steps .xs-picture{overflow:auto;max-height:640px;max-width:100%;flex:0 1 auto}
.xgrad-steps .xs-side{flex:1 1 240px;min-width:220px}
.xgrad-steps h4{margin:0 0 4px;font-size:14px;color:inherit}
.xgrad-steps h5{margin:10px 0 2px;font-size:12px;color:var(--xv-soft);font-weight:normal;text-transform:none}
.xgrad-steps ul{margin:0;padding-left:18px}
.xgrad-steps li{overflow-wrap:anywhere}
.xgrad-steps pre{white-space:pre-wrap;color:inherit;background:none}
.xgrad-steps summary{color:var(--xv-soft);cursor:pointer;margin-top:8px}
.xgrad-steps .xv-node.xs-done{opacity:.35}
.xgrad-steps .xv-node.xs-ready>rect{stroke:var(--xv-mark);stroke-width:2;stroke-dasharray:4 2}
.xgrad-steps .xv-node.xs-now>rect{stroke:var(--xv-mark);stroke-width:3.5;stroke-dasharray:none}
"""

_SCRIPT = """(() => {
const steps = %s;
const root = document.querySelector('[data-xgrad-steps="%s"]:not([data-live])');
if (!root) return;
root.dataset.live = "1";
const at = name => root.querySelector("[data-part=" + name + "]");
const boxes = [...root.querySelectorAll(".xv-node[data-n]")].map(g => [g, g.dataset.n.split(" ").map(Number)]);
const turn = new Map(steps.map((step, i) => [step.node, i]));
const list = (name, lines) => at(name).replaceChildren(...lines.map(line => {
  const item = document.createElement("li"); item.textContent = line; return item; }));
let now = -1;
const show = i => {
  i = Math.max(0, Math.min(steps.length - 1, i));
  if (i === now) return;
  now = i;
  const step = steps[i], ready = new Set(step.ready);
  for (const [g, nodes] of boxes) {
    const running = nodes.includes(step.node);
    g.classList.toggle("xs-now", running);
    g.classList.toggle("xs-ready", !running && nodes.some(n => ready.has(n)));
    g.classList.toggle("xs-done", !running && nodes.every(n => turn.has(n) && turn.get(n) < i));
  }
  at("title").textContent = step.title;
  at("count").textContent = i + " / " + (steps.length - 1);
  list("events", step.events);
  list("ready", step.readyNames);
  list("waiting", step.waiting);
  at("released").textContent = step.released;
  at("slider").value = i;
  at("first").disabled = at("back").disabled = i === 0;
  at("next").disabled = at("last").disabled = i === steps.length - 1;
  root.dataset.step = i;
  const running = boxes.find(([g]) => g.classList.contains("xs-now")), frame = at("picture");
  if (running && frame.scrollHeight > frame.clientHeight) {
    const a = running[0].getBoundingClientRect(), b = frame.getBoundingClientRect();
    if (a.top < b.top || a.bottom > b.bottom) frame.scrollTop += a.top - b.top - frame.clientHeight / 3;
  }
};
const moves = {first: () => 0, back: () => now - 1, next: () => now + 1, last: () => steps.length - 1};
for (const name in moves) at(name).addEventListener("click", () => show(moves[name]()));
at("slider").addEventListener("input", event => show(Number(event.target.value)));
const keys = {ArrowLeft: "back", ArrowRight: "next", ArrowUp: "back", ArrowDown: "next", Home: "first", End: "last"};
root.addEventListener("keydown", event => {
  if (!(event.key in keys)) return;
  event.preventDefault(); event.stopPropagation();
  show(moves[keys[event.key]]());
});
at("bar").hidden = at("side").hidden = false;
show(0);
})();"""


def player(picture: str, steps: list[dict[str, Any]], text: str) -> str:
    """Return a picture with its steps.  A step has node, title, events, ready, readyNames, waiting and released."""
    mark = secrets.token_hex(8)
    # In a script "</script>" would end it, whatever string it stands in.
    data = json.dumps(steps, ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", " ").replace("\u2029", " ")
    button = '<button type="button" data-part="{}" title="{}">{}</button>'
    bar = "".join(
        button.format(*each)
        for each in (("first", "Home", "|◀"), ("back", "←", "◀"), ("next", "→", "▶"), ("last", "End", "▶|"))
    )
    return (
        f'<div class="xgrad-viz xgrad-steps" tabindex="0" data-xgrad-steps="{mark}"><style>{STYLE}{_STYLE}</style>'
        f'<div class="xs-bar" data-part="bar" hidden>{bar}'
        f'<input type="range" min="0" max="{len(steps) - 1}" value="0" data-part="slider" aria-label="step">'
        '<span data-part="count"></span></div>'
        f'<div class="xs-view"><div class="xs-picture" data-part="picture">{picture}</div>'
        '<div class="xs-side" data-part="side" hidden aria-live="polite"><h4 data-part="title"></h4>'
        '<ul data-part="events"></ul>'
        '<h5>ready, in this order</h5><ul data-part="ready"></ul>'
        '<h5>wait for more gradients</h5><ul data-part="waiting"></ul>'
        '<h5>released so far</h5><div data-part="released"></div></div></div>'
        f"<details><summary>the steps as text</summary><pre>{escape(text)}</pre></details>"
        f"<script>{_SCRIPT % (data, mark)}</script></div>"
    )
