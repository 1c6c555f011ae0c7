"""One self-contained HTML page from any run folders: tables, curves, predictions, audit."""

from dcnn.report.chart import Chart, Figure
from dcnn.report.curves import series_figure
from dcnn.report.page import write_page, write_rows_page, write_run_page
from dcnn.report.table import Table

__all__ = ["Chart", "Figure", "Table", "series_figure", "write_page", "write_rows_page", "write_run_page"]
