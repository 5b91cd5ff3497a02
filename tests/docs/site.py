#!/usr/bin/env python3
"""What a reader of the site sees, in a headless Chromium: `site.py FOLDER`. Prints TAP-like lines, fails on any fault."""

import functools
import http.server
import pathlib
import sys
import threading
import urllib.parse

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

WAIT = 60


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


# Follows every link inside the site, from its first page on; the browser reads the pages.
CRAWL = """
const base = arguments[0], done = arguments[1];
const ids = {}, links = [], todo = [base + "index.html"], schemes = new Set();
const read = async page => {
    const answer = await fetch(page);
    if (!answer.ok) { ids[page] = null; return; }
    ids[page] = [];
    if (!page.endsWith(".html")) return;
    const document_ = new DOMParser().parseFromString(await answer.text(), "text/html");
    ids[page] = [...document_.querySelectorAll("[id], a[name]")].map(e => e.id || e.name);
    for (const e of document_.querySelectorAll("a[href], area[href], img[src], object[data]")) {
        const url = new URL(e.getAttribute("href") ?? e.getAttribute("src") ?? e.getAttribute("data"), page);
        if (!url.href.startsWith(base)) { schemes.add(url.protocol); continue; }
        const target = url.origin + url.pathname;
        links.push([page, target, decodeURIComponent(url.hash.slice(1))]);
        if (!(target in ids)) { ids[target] = []; todo.push(target); }
    }
};
(async () => {
    while (todo.length) await Promise.all(todo.splice(0).map(read));
    const broken = links.filter(([, to, id]) => ids[to] === null || (id && to.endsWith(".html") && !ids[to].includes(id)));
    done({pages: Object.keys(ids).length, links: links.length, broken: broken.map(l => l.join(" ")), schemes: [...schemes]});
})().catch(failed => done({error: String(failed)}));
"""


def check_links(browser, base):
    browser.get(base + "index.html")
    browser.set_script_timeout(240)
    seen = browser.execute_async_script(CRAWL, base)
    assert "error" not in seen, seen
    for each in sorted(set(seen["broken"]))[:20]:
        print(f"broken: {each}")
    assert not seen["broken"], f"{len(seen['broken'])} broken links"
    assert set(seen["schemes"]) <= {"http:", "https:", "javascript:"}, seen["schemes"]
    assert seen["pages"] > 200, seen
    print(f"{seen['pages']} pages, {seen['links']} links, none broken")


def check_diagram(browser, base):
    """The picture of ownership.md is there, and is drawn."""
    browser.get(base + "index.html")
    browser.find_element(By.LINK_TEXT, "Ownership and lifetimes").click()
    WebDriverWait(browser, WAIT).until(lambda b: "Ownership" in b.title)
    picture = browser.find_element(By.CSS_SELECTOR, "object[type='image/svg+xml'], img[src$='ownership.svg']")
    WebDriverWait(browser, WAIT).until(lambda _: picture.size["width"] > 300 and picture.size["height"] > 150)
    drawn = browser.execute_script("""const e = arguments[0];
        const svg = e.contentDocument ? e.contentDocument.documentElement : null;
        return svg ? [...svg.querySelectorAll("text")].map(t => t.textContent) : [e.naturalWidth]""", picture)
    assert drawn == [670] or {"cm_id", "cm_event", "qp", "mr"} <= set(drawn), drawn
    print(f"the diagram is there, {picture.size['width']} pixels wide")


def check_search(browser, base, term):
    """Typing a C function's name shows a result, which leads to its line in the table."""
    browser.get(base + "index.html")
    field = WebDriverWait(browser, WAIT).until(lambda b: b.find_element(By.ID, "MSearchField"))
    field.click()
    field.send_keys(term)

    def results(_):
        browser.switch_to.default_content()
        frames = browser.find_elements(By.CSS_SELECTOR, "#MSearchResults")
        if frames and frames[0].tag_name == "iframe":
            browser.switch_to.frame(frames[0])
        shown = [e for e in browser.find_elements(By.CSS_SELECTOR, "a.SRSymbol") if e.is_displayed() and term in e.text]
        return [e for e in shown if e.get_attribute("href").startswith(base)]

    found = WebDriverWait(browser, WAIT).until(results)
    target = found[0].get_attribute("href")
    browser.switch_to.default_content()
    browser.get(target)
    assert term in browser.find_element(By.TAG_NAME, "body").text
    print(f"the search finds {term}: {urllib.parse.urlparse(target).path}")


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_address[1]}/"
    options = webdriver.ChromeOptions()
    for argument in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,1000"):
        options.add_argument(argument)
    options.binary_location = "/usr/bin/chromium"
    browser = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    browser.set_page_load_timeout(120)
    try:
        check_diagram(browser, base)
        for term in ("rdma_ack_cm_event", "rdma_get_cm_event", "Troubleshooting"):
            check_search(browser, base, term)
        check_links(browser, base)
    finally:
        browser.quit()
        server.shutdown()


SITE = pathlib.Path(sys.argv[1]).resolve()
main()
