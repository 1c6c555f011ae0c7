"""Pages in headless Chromium: nothing on the console, everything drawn, tables sort and filter, molecules turn."""

import pytest

SIZES = """[...document.querySelectorAll('svg.chart, canvas')].map(e => e.getBoundingClientRect())
    .map(b => [b.width, b.height])"""
ROWS = "[...document.querySelectorAll('#all-runs tbody tr')].filter(r => !r.hidden)"
COLUMN = ROWS + ".map(r => r.cells[{}].textContent.trim())"
PIXELS = "document.querySelector('canvas').toDataURL()"


@pytest.fixture
def tab(browser, page):
    browser.open(page)
    return browser


def header(name):
    return f"[...document.querySelectorAll('#all-runs th')].find(h => h.textContent.startsWith('{name}'))"


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, False), (1200, True)])
def test_a_page_opens_without_a_complaint_and_fits_the_screen(browser, page, width, dark):
    browser.open(page, width=width, dark=dark)
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.problems() == []
    assert browser.requests() == []
    assert browser.run("document.documentElement.scrollWidth") == width
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") != dark


def test_every_chart_is_drawn(tab):
    tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    sizes = tab.run(SIZES)
    assert len(sizes) > 25
    assert all(width > 100 and height > 40 for width, height in sizes)
    marks = tab.run(
        "[...document.querySelectorAll('svg.chart')].map(s => s.querySelectorAll('.line, .small, .dot, image').length)"
    )
    assert all(count > 0 for count in marks)
    outside = """[...document.querySelectorAll('svg.chart text')].filter(t => {
        const a = t.getBBox(), b = t.ownerSVGElement.viewBox.baseVal;
        return a.x < -1 || a.x + a.width > b.width + 1 || a.y + a.height > b.height + 1; }).map(t => t.textContent)"""
    assert tab.run(outside) == []


def test_pictures_in_the_page_are_read(tab):
    broken = """Promise.all([...document.querySelectorAll('image')].map(i => new Promise(done => {
        const copy = new Image(); copy.onload = () => done(copy.naturalWidth > 0); copy.onerror = () => done(false);
        copy.src = i.href.baseVal; }))).then(all => all.filter(ok => !ok).length + ' of ' + all.length)"""
    found = tab.run(broken)
    assert found.startswith("0 of ")
    assert int(found.split()[-1]) >= 8


@pytest.mark.parametrize("name", ["seed", "force MAE", "recipe", "time"])
def test_tables_sort_both_ways(tab, name):
    column = tab.run(f"{header(name)}.cellIndex")
    cell = f"r.cells[{column}]"
    values = f"{ROWS}.map(r => {cell}.dataset.value ?? {cell}.textContent.trim())"

    def sorted_column():
        tab.run(f"{header(name)}.click()")
        found = [value for value in tab.run(values) if value != ""]
        return found if name == "recipe" else [float(value) for value in found]

    up, down = sorted_column(), sorted_column()
    assert up == sorted(up)
    assert down == sorted(down, reverse=True)
    assert tab.run(f"{header(name)}.getAttribute('aria-sort')") == "descending"
    assert len(tab.run(values)) == 4


def test_runs_without_a_number_come_last(tab):
    for _ in range(2):
        tab.run(f"{header('force MAE')}.click()")
        column = tab.run(f"{header('force MAE')}.cellIndex")
        assert tab.run(COLUMN.format(column))[-1] == "–", "the PDE has no force error"


def test_tables_sort_with_the_keyboard(tab):
    key = "new KeyboardEvent('keydown', {key: 'Enter', bubbles: true, cancelable: true})"
    tab.run(f"{header('seed')}.dispatchEvent({key})")
    assert tab.run(f"{header('seed')}.getAttribute('aria-sort')") == "ascending"


@pytest.mark.parametrize(
    ("words", "shown"),
    [("best", 3), ("original", 1), ("schnet best", 2), ("ADVECTION", 1), ("nothing like it", 0), ("", 4)],
)
def test_the_filter_keeps_what_matches_all_words(tab, words, shown):
    tab.run(f"""(() => {{ const box = document.querySelector('input[data-for=all-runs]');
        box.value = '{words}'; box.dispatchEvent(new Event('input')); }})()""")
    assert len(tab.run(COLUMN.format(0))) == shown
    text = tab.run("document.getElementById('all-runs-count').textContent")
    assert text == ("4 rows" if shown == 4 else f"{shown} of 4")


def test_a_molecule_is_drawn_and_turns(tab):
    tab.run("document.querySelectorAll('details').forEach(d => d.open = d.querySelector('canvas') !== null)")
    tab.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    before = tab.run(PIXELS)
    painted = """(() => { const c = document.querySelector('canvas');
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n / (c.width * c.height); })()"""
    assert 0.01 < tab.run(painted) < 0.9
    box = tab.run("""(() => { const c = document.querySelector('canvas');
        c.scrollIntoView({ behavior: 'instant', block: 'center' });
        const b = c.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()""")
    mouse = {"button": "left", "buttons": 1, "clickCount": 1}
    tab.call("Input.dispatchMouseEvent", type="mousePressed", x=box[0], y=box[1], **mouse)
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + 60, y=box[1] + 20, **mouse)
    tab.call("Input.dispatchMouseEvent", type="mouseReleased", x=box[0] + 60, y=box[1] + 20, **mouse)
    turned = tab.run(PIXELS)
    assert turned != before
    tab.run("""(() => { const s = document.querySelector('.molecule select');
        s.value = '1'; s.dispatchEvent(new Event('change')); })()""")
    assert tab.run(PIXELS) != turned
    assert float(tab.run("document.querySelector('.longest').textContent")) > 0
    assert tab.problems() == []
