/* SPDX-License-Identifier: BSD-3-Clause */
/* capture_fuzz.c - one or two capture files that nobody vouches for, through `ropeway explain`:
 * reader, merge, story, terminal, page. What must hold: packets stand in time; folds are in order
 * and hide nothing that is marked; the terminal gets plain text; the page's data is JSON, has every
 * row, and nothing in it can end the script element that it stands in.
 *
 * Input: bytes of the first capture (2, big-endian), it, the second one. No second bytes, no second
 * capture. */
#include "fuzz.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/explain/explain.h"
#include "cli/explain/page.h"
#include "cli/options.h"

/* The page is its data alone. */
const unsigned char rpwi_explain_page_head[1], rpwi_explain_page_tail[1];
const size_t rpwi_explain_page_head_len, rpwi_explain_page_tail_len;

int rpwi_cli_fail(int status, const char *command, const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return status;
}
int cli_options_parse(const struct cli_command *c, void *into, int *argc, char ***argv)
{
	return CLI_USAGE;
}

static int file_of(const uint8_t *data, size_t len, char name[64])
{
	int fd = memfd_create("capture", MFD_CLOEXEC);
	if (fd < 0 || write(fd, data, len) != (ssize_t)len)
		abort();
	snprintf(name, 64, "/proc/self/fd/%d", fd);
	return fd;
}

static void look_at_talk(const struct ex_model *m, const struct ex_talk *t)
{
	uint32_t from = 0;
	if (!t->rows)
		return;
	for (uint32_t f = 0; f < t->folds; f++) {
		if (t->fold[f].from < from || t->fold[f].to < t->fold[f].from ||
			t->fold[f].to >= t->rows)
			fuzz_broken("folds are out of order");
		from = t->fold[f].to + 1;
		for (uint32_t n = t->fold[f].from; n <= t->fold[f].to; n++)
			if (m->pkt[t->row[n]].marks || ex_is_cm(&m->pkt[t->row[n]]))
				fuzz_broken("a fold hides news");
	}
	for (uint32_t n = 0; n < t->rows; n++) {
		const struct ex_pkt *k = &m->pkt[t->row[n]];
		if (t->row[n] >= m->pkts || k->side > 1 || k->file >= m->files ||
			k->time_ns < m->start_ns)
			fuzz_broken("a row that cannot be");
		if (n && k->time_ns < m->pkt[t->row[n - 1]].time_ns)
			fuzz_broken("time goes backwards");
	}
}

static void look_at_text(const struct ex_model *m)
{
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);
	if (!to || rpwi_explain_text(m, to, false, 80))
		fuzz_broken("no text");
	fclose(to);
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] >= 0x7f ||
			((unsigned char)text[i] < ' ' && text[i] != '\n'))
			fuzz_broken("the terminal gets what is no plain text");
	free(text);
}

static void look_at_page(const struct ex_model *m)
{
	char *text = NULL;
	size_t len = 0, i = 0;
	FILE *to = open_memstream(&text, &len);
	if (!to || rpwi_explain_html(m, to))
		fuzz_broken("no page");
	fclose(to);
	if (memchr(text, '<', len) || memchr(text, '>', len) || memchr(text, '&', len))
		fuzz_broken("markup within the page's data");
	json_error_t why;
	json_t *page = json_loadb(text, len, 0, &why), *talks = json_object_get(page, "talks");
	if (!json_is_array(talks))
		fuzz_broken("the page's data is no JSON");
	for (uint32_t n = 0; n < m->talks && i < json_array_size(talks); n++) {
		if (!m->talk[n].rows)
			continue;
		const json_t *t = json_array_get(talks, i++);
		if (json_array_size(json_object_get(t, "rows")) != m->talk[n].rows ||
			json_array_size(json_object_get(t, "folds")) != m->talk[n].folds)
			fuzz_broken("rows are not on the page");
	}
	json_decref(page);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (len < 2)
		return 0;
	size_t first = RPWI_MIN((size_t)rpwi_get_be16(data), len - 2);
	char name[2][64], *names[2] = {name[0], name[1]};
	int fd[2] = {file_of(data + 2, first, name[0]), -1};
	if (first < len - 2)
		fd[1] = file_of(data + 2 + first, len - 2 - first, name[1]);
	struct ex_model m = {0};
	if (rpwi_explain_load(&m, names, fd[1] < 0 ? 1 : 2) == CLI_OK) {
		for (uint32_t i = 0; i < m.talks; i++)
			look_at_talk(&m, &m.talk[i]);
		look_at_text(&m);
		look_at_page(&m);
	}
	rpwi_explain_unload(&m);
	close(fd[0]);
	if (fd[1] >= 0)
		close(fd[1]);
	return 0;
}
