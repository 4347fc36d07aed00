/* SPDX-License-Identifier: BSD-3-Clause */
/* text_test.c - a finding as a block of text: what stands where, at which width, and that nothing
 * of it reaches the terminal as a control character. */
#include "lib/test.h"

#include "base/base.h"
#include "check/finding.h"

static const struct rpwi_rule_info rule = {103, "buffer-reposted", RPWI_SEVERITY_ERROR, false,
	"memory of a request that has not completed was given to another request",
	"both requests own the bytes: what is sent or received there depends on timing",
	"post a buffer again only after the completion of its request was polled",
	"IB 10.8.3.1; ibv_post_send(3), ibv_post_recv(3)"};

static struct rpwi_shown shown(void)
{
	return (struct rpwi_shown){.rule = &rule,
		.text = "the 4096 bytes at 0x7f0000001000 belong to the SEND with wr_id 6, posted "
			"12 us before",
		.objects = "QP 0x000011 (RC, RTS, peer's 0x000012), SEND with wr_id 7",
		.program = "server",
		.pid = 4711,
		.count = 1,
		.site = {{"posted here",
				 {"ring_put at ring.h:30 (inlined)\nsend_loop at server.c:120",
					 "main at server.c:200"}},
			{"posted before", {"/usr/lib/libx.so+0x1234"}}}};
}

static void a_block_has_every_part_in_its_place(void **state)
{
	static const char expected[] =
		"ropeway: error 103 buffer-reposted: server, process 4711\n"
		"  memory of a request that has not completed was given to another request\n"
		"  found     the 4096 bytes at 0x7f0000001000 belong to the SEND with wr_id 6,\n"
		"            posted 12 us before\n"
		"  objects   QP 0x000011 (RC, RTS, peer's 0x000012), SEND with wr_id 7\n"
		"  posted here\n"
		"            #0 ring_put at ring.h:30 (inlined)\n"
		"               send_loop at server.c:120\n"
		"            #1 main at server.c:200\n"
		"  posted before\n"
		"            #0 /usr/lib/libx.so+0x1234\n"
		"  on a NIC  both requests own the bytes: what is sent or received there depends\n"
		"            on timing\n"
		"  remedy    post a buffer again only after the completion of its request was\n"
		"            polled\n"
		"  source    IB 10.8.3.1; ibv_post_send(3), ibv_post_recv(3)\n";
	struct rpwi_shown s = shown();
	char out[4096];
	size_t len = rpwi_shown_text(&s, false, 80, out, sizeof(out));
	assert_string_equal(out, expected);
	assert_int_equal(len, strlen(out));
	s.count = 8;
	s.program = "/usr/bin/server";
	s.peer = "no receive was posted";
	rpwi_shown_text(&s, false, 80, out, sizeof(out));
	assert_non_null(strstr(out, "reposted: server, process 4711, 8 times\n"));
	assert_non_null(strstr(out, "\n  peer      no receive was posted\n  posted here\n"));
}

static unsigned longest_line(const char *text)
{
	size_t most = 0;
	for (size_t len; *text; text += len + 1) {
		len = strcspn(text, "\n");
		most = RPWI_MAX(most, len);
	}
	return (unsigned)most;
}

static void lines_end_before_the_last_column_unless_they_never_do(void **state)
{
	struct rpwi_shown s = shown();
	char out[4096];
	for (unsigned columns = 50; columns <= 120; columns++) {
		IN_CASE("columns", columns);
		rpwi_shown_text(&s, false, columns, out, sizeof(out));
		assert_in_range(longest_line(out), 45, columns);
	}
	rpwi_shown_text(&s, false, 0, out, sizeof(out));
	assert_non_null(strstr(out, "with wr_id 6, posted 12 us before\n"));
	/* 40 characters of 2 bytes are 40 columns */
	s.text = "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
		 "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
		 " \xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
		 " b";
	rpwi_shown_text(&s, false, 45, out, sizeof(out));
	assert_non_null(strstr(out, "\xa4 b\n"));
	rpwi_shown_text(&s, false, 44, out, sizeof(out));
	assert_non_null(strstr(out, "\xa4\n            b\n"));
}

/* The text without escapes is the text without color. */
static void color_changes_nothing_else(void **state)
{
	struct rpwi_shown s = shown();
	char plain[4096], color[4096], *to = color;
	rpwi_shown_text(&s, false, 80, plain, sizeof(plain));
	rpwi_shown_text(&s, true, 80, color, sizeof(color));
	assert_non_null(strstr(color, "\033[1;31merror 103 buffer-reposted\033[0m"));
	for (const char *from = color; (*to = *from); from++) {
		if (*from == '\033')
			from = strchr(from, 'm');
		else
			to++;
	}
	assert_string_equal(color, plain);
}

static void no_control_character_passes(void **state)
{
	struct rpwi_shown s = shown();
	char out[4096];
	s.text = "a\033[2Jb\nc\x7f";
	s.program = "x\ry";
	s.objects = s.peer = "\a";
	s.site[0].what = "here\n";
	s.site[0].frame[0] = "\tf";
	rpwi_shown_text(&s, false, 80, out, sizeof(out));
	for (const char *at = out; *at; at++)
		assert_true((*at >= ' ' && *at != 0x7f) || *at == '\n');
	assert_non_null(strstr(out, "found     a?[2Jb\n            c?\n"));
}

static void a_block_that_is_too_long_is_cut(void **state)
{
	struct rpwi_shown s = shown();
	char whole[4096], out[4096];
	size_t len = rpwi_shown_text(&s, true, 80, whole, sizeof(whole));
	for (size_t room = 0; room <= len + 2; room++) {
		IN_CASE("room", room);
		memset(out, 'x', sizeof(out));
		size_t n = rpwi_shown_text(&s, true, 80, out, room);
		assert_int_equal(n, RPWI_MIN(len, room ? room - 1 : 0));
		assert_memory_equal(out, whole, n);
		assert_int_equal(out[n], room ? '\0' : 'x');
		assert_int_equal(out[RPWI_MAX(n + 1, room)], 'x');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_block_has_every_part_in_its_place),
		cmocka_unit_test(lines_end_before_the_last_column_unless_they_never_do),
		cmocka_unit_test(color_changes_nothing_else),
		cmocka_unit_test(no_control_character_passes),
		cmocka_unit_test(a_block_that_is_too_long_is_cut),
	};
	return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
