/* SPDX-License-Identifier: BSD-3-Clause */
/* plot.c - curves as an SVG of our own: panels side by side, both axes logarithmic, a legend,
 * readable in light and dark. */
#include "cli/perf/perf.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "cli/cli.h"

enum {
	PANEL_W = 460,
	PANEL_H = 320,
	LEFT = 74,
	TOP = 64,
	RIGHT = 18,
	BELOW = 60,
	LEGEND_ROW = 20,
	COLOURS = 4
};

/* Told apart by those who see red and green alike, on white and on black. */
static const char style[] =
	"<style>\n"
	"svg{background:#fff;font:13px "
	"system-ui,sans-serif}text{fill:#222}.q{fill:#666;font-size:11px}.h{font-size:15px;font-"
	"weight:600}\n"
	".g{stroke:#e3e3e3}.a{stroke:#999;fill:none}.l{fill:none;stroke-width:2}.d{stroke-"
	"dasharray:5 "
	"4}.c0{stroke:#0b62b8}.c1{stroke:#b8480b}.c2{stroke:#1b7f5c}.c3{stroke:#8a3fa0}\n"
	"@media "
	"(prefers-color-scheme:dark){svg{background:#14171a}text{fill:#e6e6e6}.q{fill:#a8a8a8}.g{"
	"stroke:#2c3136}.a{stroke:#777}"
	".c0{stroke:#6cb6ff}.c1{stroke:#ff9e64}.c2{stroke:#5fd7a7}.c3{stroke:#d59cf0}}\n"
	"</style>\n";

struct range {
	double low, high; /* logarithms */
};

static void range_add(struct range *r, double v)
{
	r->low = RPWI_MIN(r->low, v);
	r->high = RPWI_MAX(r->high, v);
}

static double place(const struct range *r, double v, double from, double to)
{
	return r->high > r->low ? from + (v - r->low) / (r->high - r->low) * (to - from)
				: (from + to) / 2;
}

static void tick_text(char *out, size_t room, double v, bool is_bytes)
{
	static const struct {
		double at;
		const char *rate, *time;
	} scale[] = {{1e9, "GB/s", ""}, {1e6, "MB/s", ""}, {1e3, "kB/s", ""}, {1, "B/s", "s"},
		{1e-3, "", "ms"}, {1e-6, "", "us"}, {0, "", "ns"}};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(scale); i++) {
		const char *unit = is_bytes ? scale[i].rate : scale[i].time;
		if (*unit && v >= scale[i].at * 0.999) {
			snprintf(out, room, "%g %s",
				round(v / (scale[i].at > 0 ? scale[i].at : 1e-9) * 100) / 100,
				unit);
			return;
		}
	}
	snprintf(out, room, "%g", v);
}

static void size_text(char *out, size_t room, uint64_t bytes)
{
	unsigned shift = bytes >= 1 << 20 ? 20 : bytes >= 1 << 10 ? 10 : 0;
	snprintf(out, room, "%llu%s", (unsigned long long)(bytes >> shift),
		shift == 20 ? "M"
		: shift     ? "K"
			    : "");
}

/* Legends and titles come from names of programs: kept harmless. */
static void put_text(FILE *f, const char *s)
{
	for (; *s; s++)
		switch (*s) {
		case '<':
			fputs("&lt;", f);
			break;
		case '>':
			fputs("&gt;", f);
			break;
		case '&':
			fputs("&amp;", f);
			break;
		default:
			fputc(*s, f);
		}
}

static void axes(FILE *f, const struct perf_panel *p, const struct range *x, const struct range *y,
	double x0, double y0)
{
	double x1 = x0 + PANEL_W - LEFT - RIGHT, y1 = y0 + PANEL_H - TOP - BELOW;
	char text[32];
	for (int tick = (int)ceil(y->low); tick <= (int)floor(y->high + 1e-9); tick++) {
		double d = tick;
		double at = place(y, d, y1, y0);
		tick_text(text, sizeof(text), pow(10, d), p->is_bytes);
		fprintf(f,
			"<path class=\"g\" d=\"M%.1f %.1fH%.1f\"/><text class=\"q\" x=\"%.1f\" "
			"y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
			x0, at, x1, x0 - 6, at + 4, text);
	}
	int step = x->high - x->low > 12 ? 4 : 2;
	for (int tick = (int)ceil(x->low); tick <= (int)floor(x->high + 1e-9); tick += step) {
		double d = tick;
		double at = place(x, d, x0, x1);
		size_text(text, sizeof(text), (uint64_t)pow(2, d));
		fprintf(f,
			"<path class=\"g\" d=\"M%.1f %.1fV%.1f\"/><text class=\"q\" x=\"%.1f\" "
			"y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
			at, y0, y1, at, y1 + 16, text);
	}
	fprintf(f,
		"<path class=\"a\" d=\"M%.1f %.1fV%.1fH%.1f\"/><text class=\"q\" x=\"%.1f\" "
		"y=\"%.1f\" text-anchor=\"middle\">bytes of a message</text>\n",
		x0, y0, y1, x1, (x0 + x1) / 2, y1 + 34);
}

static void panel(FILE *f, const struct perf_panel *p, double left)
{
	struct range x = {INFINITY, -INFINITY}, y = {INFINITY, -INFINITY};
	double x0 = left + LEFT, y0 = TOP, x1 = left + PANEL_W - RIGHT, y1 = PANEL_H - BELOW;
	for (unsigned i = 0; i < p->n; i++)
		for (unsigned k = 0; k < p->series[i].n; k++) {
			range_add(&x, log2(p->series[i].x[k]));
			range_add(&y, log10(p->series[i].y[k]));
		}
	if (!isfinite(x.low) || !isfinite(y.low))
		return;
	y.low = floor(y.low);
	y.high = ceil(y.high);
	if (y.high <= y.low)
		y.high = y.low + 1;
	fprintf(f,
		"<text x=\"%.1f\" y=\"%d\"><tspan font-weight=\"600\">%s</tspan>  <tspan "
		"class=\"q\">%s</tspan></text>\n",
		x0, TOP - 12, p->title, p->unit);
	axes(f, p, &x, &y, x0, y0);
	for (unsigned i = 0; i < p->n; i++) {
		const struct perf_series *s = &p->series[i];
		fprintf(f, "<polyline class=\"l c%u%s\" points=\"", s->colour % COLOURS,
			s->dashed ? " d" : "");
		for (unsigned k = 0; k < s->n; k++)
			fprintf(f, "%.1f,%.1f ", place(&x, log2(s->x[k]), x0, x1),
				place(&y, log10(s->y[k]), y1, y0));
		fputs("\"><title>", f);
		put_text(f, s->name);
		fputs("</title></polyline>\n", f);
		double at = PANEL_H + (double)i * LEGEND_ROW;
		fprintf(f,
			"<path class=\"l c%u%s\" d=\"M%.1f %.1fh28\"/><text x=\"%.1f\" y=\"%.1f\">",
			s->colour % COLOURS, s->dashed ? " d" : "", x0, at, x0 + 36, at + 4);
		put_text(f, s->name);
		fputs("</text>\n", f);
	}
}

int rpwi_perf_plot(const char *file, const char *title, const struct perf_panel *panels, unsigned n)
{
	unsigned rows = 1, shown = 0;
	for (unsigned i = 0; i < n; i++)
		rows = RPWI_MAX(rows, panels[i].n);
	FILE *f = fopen(file, "we");
	if (!f)
		return -errno;
	for (unsigned i = 0; i < n; i++)
		shown += panels[i].n > 0;
	unsigned width = PANEL_W * (shown ? shown : 1), height = PANEL_H + rows * LEGEND_ROW;
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %u %u\" width=\"%u\" "
		"height=\"%u\" role=\"img\">\n<title>",
		width, height, width, height);
	put_text(f, title);
	fprintf(f, "</title>\n%s<text class=\"h\" x=\"16\" y=\"26\">", style);
	put_text(f, title);
	fputs("</text>\n", f);
	for (unsigned i = 0, at = 0; i < n; i++)
		if (panels[i].n)
			panel(f, &panels[i], (double)at++ * PANEL_W);
	fputs("</svg>\n", f);
	int rc = ferror(f) ? -EIO : 0;
	return fclose(f) ? -errno : rc;
}
