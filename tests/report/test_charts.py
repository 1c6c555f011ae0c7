"""Charts: marks stand where the axes say, bad values are left out, text is escaped, maps are the right way up."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from dcnn.report import Chart, series_figure
from dcnn.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH, heat_map
from dcnn.report.raster import DIVERGING, picture
from dcnn.report.ticks import ticks


def path_of(svg, kind="line"):
    d = re.search(rf'<path class="{kind} c\d" d="([^"]*)"', svg).group(1)
    return np.array([[float(v) for v in pair.split()] for pair in re.split("[ML]", d)[1:]])


@pytest.mark.parametrize("log", [False, True])
def test_a_line_goes_through_its_points(log):
    chart = Chart("x (s)", "y (m)", log_x=log, log_y=log, x_range=(1.0, 100.0), y_range=(1.0, 100.0))
    chart.line([1.0, 10.0, 100.0], [1.0, 10.0, 100.0])
    places = path_of(str(chart.figure("t").svg))
    share = 0.5 if log else 9 / 99
    right, bottom = WIDTH - RIGHT, chart.height - BOTTOM
    assert places == pytest.approx(
        np.array([[LEFT, bottom], [LEFT + share * (right - LEFT), bottom + share * (TOP - bottom)], [right, TOP]]),
        abs=0.06,
    )


def test_values_that_cannot_be_drawn_are_left_out():
    chart = Chart("x", "y", log_y=True)
    chart.line([1, 2, 3, 4], [1.0, np.nan, -1.0, 10.0])
    assert len(path_of(str(chart.figure("t").svg))) == 2
    nothing = Chart("x", "y", log_y=True)
    nothing.line([1, 2], [0.0, np.inf])
    assert nothing.empty
    assert not chart.empty


def test_a_constant_series_still_has_an_axis():
    chart = Chart("x", "y")
    chart.line([0, 1], [3.0, 3.0])
    places = path_of(str(chart.figure("t").svg))
    assert places[0, 1] == pytest.approx((TOP + chart.height - BOTTOM) / 2, abs=0.1)


def test_a_few_values_near_zero_do_not_flatten_the_others():
    chart = Chart("x", "y", log_y=True)
    chart.line(np.arange(100.0), [1e-18, *np.geomspace(1.0, 0.1, 99)])
    places = path_of(str(chart.figure("t").svg))
    bottom = chart.height - BOTTOM
    assert places[0, 1] == pytest.approx(bottom, abs=0.1), "cut off at the axis"
    assert np.ptp(places[1:, 1]) > 0.25 * (bottom - TOP)


def test_text_is_escaped():
    chart = Chart("<x>", "a & b")
    chart.line([0, 1], [0, 1], label='"<script>"')
    svg = str(chart.figure("<title>").svg)
    assert "<script>" not in svg
    assert "&lt;x&gt;" in svg
    assert "a &amp; b" in svg


def test_equal_axes_have_one_range():
    chart = Chart("x", "y", equal=True)
    chart.diagonal()
    chart.points([0.0, 1.0], [5.0, 10.0], style="small")
    labels = re.findall(r'text-anchor="(?:middle|end)">([^<]*)</text>', str(chart.figure("t").svg))
    numbers = [label for label in labels if label not in ("x", "y")]
    half = len(numbers) // 2
    assert numbers[:half] == numbers[half:]


def test_a_histogram_starts_at_zero():
    chart = Chart("x", "n")
    chart.steps([0.0, 1.0, 2.0], [3, 1])
    places = path_of(str(chart.figure("t").svg))
    middle = 0.5 * (LEFT + WIDTH - RIGHT)
    assert places[:, 0] == pytest.approx([LEFT, middle, middle, WIDTH - RIGHT], abs=0.1)
    bottom = chart.height - BOTTOM
    heights = bottom - places[:, 1]
    assert heights[0] / heights[2] == pytest.approx(3, rel=1e-2)


@pytest.mark.parametrize(
    ("low", "high", "log", "expected"),
    [
        (0, 1, False, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (-2.5, 2.5, False, ["−2", "−1", "0", "1", "2"]),
        (0, 3e6, False, ["0", "10⁶", "2×10⁶", "3×10⁶"]),
        (0, 2e-6, False, ["0", "5×10⁻⁷", "10⁻⁶", "1.5×10⁻⁶", "2×10⁻⁶"]),
        (0.1, 3, True, ["0.1", "0.2", "0.5", "1", "2"]),
        (1e-9, 1, True, ["10⁻⁹", "10⁻⁷", "10⁻⁵", "10⁻³", "10⁻¹"]),
        (3, 4, True, ["3.0", "3.2", "3.4", "3.6", "3.8", "4.0"]),
    ],
)
def test_ticks_are_round_numbers(low, high, log, expected):
    assert [text for _, text in ticks(low, high, log)] == expected


def test_a_picture_holds_the_colours_of_its_values():
    values = np.array([[0.0, 0.5], [1.0, 2.0]])
    raw = base64.b64decode(picture(values, 0.0, 1.0).split(",")[1])
    found = np.array(Image.open(io.BytesIO(raw)).convert("RGB"))
    first, middle, *last = found.reshape(4, 3).tolist()
    assert (first, last) == ([68, 1, 84], [[253, 231, 37]] * 2), "the ends of viridis"
    assert np.abs(np.array(middle) - [33, 145, 140]).max() < 4
    raw = base64.b64decode(picture(np.array([[-1.0, 0.0, 1.0]]), -1.0, 1.0, DIVERGING).split(",")[1])
    blue, white, red = np.array(Image.open(io.BytesIO(raw)).convert("RGB"))[0].tolist()
    assert blue[2] > 2 * blue[0]
    assert min(white) > 240
    assert red[0] > 3 * red[2]


def test_a_map_has_its_y_axis_upwards():
    values = np.zeros((3, 2))
    values[0, 1] = 1.0  # x first, y last: top left
    svg = str(heat_map("m", values, ("x", np.arange(3.0)), ("y", np.arange(2.0)), 0.0, 1.0).svg)
    raw = base64.b64decode(re.search(r"base64,([^\"]*)", svg).group(1))
    pixels = np.array(Image.open(io.BytesIO(raw)))
    assert pixels.shape == (2, 3)
    assert pixels.argmax() == 0


def test_a_series_has_error_bars_and_published_rings():
    ours = {"SchNet": [(10.0, 1.0, 0.5), (0.1, 3.0, None)]}
    figure = series_figure("β", ours, "β", "MAE", published={"SchNet": [(0.1, 4.0, None)], "other": [(1, 2, None)]})
    svg = str(figure.svg)
    assert svg.count('class="line thin c0"') == 1
    assert svg.count('class="ring') == 2
    assert [key.text for key in figure.keys] == ["SchNet", "SchNet, published", "other, published"]
    assert path_of(svg)[0, 0] < path_of(svg)[1, 0], "points are joined from left to right"
