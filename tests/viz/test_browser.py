"""The steps in a real browser: buttons, keys, the slider, several on a page, light and dark.

A page clicks through itself and writes what it saw; Chromium runs it without a window and gives the page back.  Without
Chromium the tests are skipped; tests/viz/test_steps.py has the logic of the steps.
"""

import html
import json
import re
import shutil
import subprocess

import pytest

import xgrad
from xgrad import viz

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
    pytest.mark.exhaustive,  # a browser takes seconds to start
]

PAGE = """<!DOCTYPE html><html><head><meta charset="utf-8"></head><body {body}>{content}
<pre id="seen"></pre><script>
const players = [...document.querySelectorAll("[data-xgrad-steps]")];
const part = (player, name) => player.querySelector("[data-part=" + name + "]");
const click = (player, name) => {{
  const button = part(player, name), place = button.getBoundingClientRect();
  player.scrollIntoView();
  const here = button.getBoundingClientRect();
  if (document.elementFromPoint(here.x + here.width / 2, here.y + here.height / 2) !== button && !button.disabled)
    throw new Error(name + " is covered");
  button.click();
}};
const key = (player, name) => player.dispatchEvent(
  new KeyboardEvent("keydown", {{key: name, bubbles: true, cancelable: true}}));
const now = player => ({{
  step: player.dataset.step, title: part(player, "title").textContent, count: part(player, "count").textContent,
  events: [...part(player, "events").children].map(item => item.textContent),
  ready: [...part(player, "ready").children].map(item => item.textContent),
  running: player.querySelectorAll(".xs-now").length, done: player.querySelectorAll(".xs-done").length,
}});
let seen;
try {{ seen = (() => {{ {script} }})(); }} catch (error) {{ seen = {{error: String(error)}}; }}
document.getElementById("seen").textContent = JSON.stringify(seen);
</script></body></html>"""


def seen(tmp_path, content, script, *flags, body=""):
    page = tmp_path / "page.html"
    page.write_text(PAGE.format(content=content, script=script, body=body), encoding="utf-8")
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", *flags,
               f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]  # fmt: skip
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = json.loads(html.unescape(re.search(r'<pre id="seen">(.*?)</pre>', dumped, re.DOTALL)[1]))
    assert "error" not in found, found
    return found


def steps():
    x = xgrad.ones(2, requires_grad=True)
    return viz.backward((x.exp() * x).sum(), params={"<x>": x})


def test_clicks_and_keys_go_through_the_steps(tmp_path):
    script = """
      const [p] = players, found = [now(p)];
      click(p, "next"); click(p, "next"); found.push(now(p));
      key(p, "ArrowLeft"); found.push(now(p));
      key(p, "End"); found.push(now(p));
      click(p, "next"); found.push(now(p));
      part(p, "slider").value = 3; part(p, "slider").dispatchEvent(new Event("input")); found.push(now(p));
      click(p, "first"); found.push(now(p));
      return {found};"""
    found = seen(tmp_path, steps().html(), script)["found"]
    assert [each["step"] for each in found] == ["0", "2", "1", "4", "4", "3", "0"]
    assert found[1]["title"] == "MulBackward0"
    assert found[1]["ready"] == ["ExpBackward0"]
    assert found[1]["running"] == 1
    assert found[1]["done"] == 1
    assert found[3]["title"] == "AccumulateGrad of <x>"
    assert found[3]["events"] == ["<x>.grad is the gradient"]
    assert found[3]["count"] == "4 / 4"


def test_several_on_one_page_do_not_clash(tmp_path):
    page = steps().html()
    again = re.sub(
        r"<script>.*</script>", "", page, flags=re.DOTALL
    )  # the same output a second time, without its script
    script = """
      click(players[0], "next"); key(players[2], "End");
      return {steps: players.map(p => p.dataset.step), live: players.map(p => p.dataset.live || "")};"""
    found = seen(tmp_path, steps().html() + page + page + again, script)
    assert found["steps"][:3] == ["1", "0", "4"]
    assert found["live"] == ["1", "1", "1", ""]


@pytest.mark.parametrize(
    ("flags", "body", "dark"),
    [
        ((), "", False),
        (("--blink-settings=preferredColorScheme=0",), "", True),
        ((), 'data-jp-theme-light="false"', True),
        (("--blink-settings=preferredColorScheme=0",), 'data-jp-theme-light="true"', False),
        ((), 'data-md-color-scheme="slate"', True),
    ],
)
def test_the_theme_is_the_readers_or_the_pages(tmp_path, flags, body, dark):
    script = """
      const fill = name => getComputedStyle(document.querySelector(name)).fill;
      return {ink: fill("text.xv-ink"), box: fill("rect.xv-operator"),
              boxes: document.querySelectorAll("rect.xv-box").length};"""
    x = xgrad.ones(2, requires_grad=True)
    found = seen(tmp_path, viz.graph((x * 2).sum()).html(), script, *flags, body=body)
    assert found["boxes"] == 4
    brightness = {k: sum(map(int, re.findall(r"\d+", found[k]))) for k in ("ink", "box")}
    assert (brightness["ink"] > brightness["box"]) == dark


def test_texts_lie_inside_their_boxes_in_the_browsers_font(tmp_path):
    script = """
      const out = [];
      for (const g of document.querySelectorAll(".xv-node")) {
        const box = g.querySelector(":scope > rect").getBoundingClientRect();
        for (const text of g.querySelectorAll(":scope > text")) {
          const place = text.getBoundingClientRect();
          const beside = place.left < box.left || place.right > box.right;
          if (beside || place.top < box.top - 1 || place.bottom > box.bottom + 1) out.push(text.textContent);
        }
      }
      return {out, count: document.querySelectorAll(".xv-node > text").length};"""
    leaf, w = xgrad.ones(2, 3, requires_grad=True), xgrad.ones(3, requires_grad=True)
    base = leaf.clone()
    base[0].mul_(w)
    found = seen(tmp_path, viz.graph(base.tanh().sum()).html(), script)
    assert found["out"] == []
    assert found["count"] > 10
