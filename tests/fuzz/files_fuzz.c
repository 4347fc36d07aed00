/* SPDX-License-Identifier: BSD-3-Clause */
/* files_fuzz.c - `ropeway recv` in the hands of its senders: the input is what one or two of them
 * say (control messages that make sense, or are spoilt, and bytes of files) over the messaging
 * library on a transport in memory. Everything that happens on the disk happens in one directory of
 * /dev/shm. Checked all along: nothing beside that directory changes, and no link in it leads out
 * of it.
 */
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../msg/fake.h"
#include "cli/files/recv.h"

enum { COMMANDS_MAX = 200, SENDERS = 2, SENDS_MAX = 400 };

static struct fuzz_run {
	struct fuzz_input in;
	struct receiver r;
	rpw_context *c; /* of the senders */
	rpw_listener *l;
	rpw_endpoint *ep[SENDERS];
	unsigned sends;
	/* of the file that was announced last; of its bytes: sent, and where the next are due */
	uint64_t size, data, offset;
} run;
static char outside[64];
static int outside_fd = -1;

int rpwi_cli_fail(int status, const char *command, const char *fmt, ...)
{
	char line[6000]; /* the words are made, so that what they are made of is read */
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	for (const char *p = line; *p; p++)
		if ((uint8_t)*p < 0x20)
			fuzz_broken("a control character on its way to the terminal");
	return status;
}

/* ---- the directory: /dev/shm/ropeway-fuzz-PID/{canary,in} ---- */

static void outside_make(void)
{
	if (outside_fd >= 0)
		return;
	snprintf(outside, sizeof(outside), "/dev/shm/ropeway-fuzz-%d", (int)getpid());
	if ((mkdir(outside, 0700) && errno != EEXIST) ||
		(outside_fd = open(outside, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		abort();
	int fd = openat(outside_fd, "canary", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (write(fd, "untouched", 9) != 9)
		abort();
	close(fd);
}

/* Everything in it goes. Links are looked at first: none may be absolute or lead above `depth`
 * directories. */
static void directory_empty(int dir, int depth)
{
	DIR *d = fdopendir(dup(dir));
	if (!d)
		abort();
	rewinddir(d);
	for (struct dirent *e; (e = readdir(d));) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		char target[FILES_TEXT_MAX + 1];
		ssize_t n = readlinkat(dir, e->d_name, target, sizeof(target) - 1);
		int up = 0;
		if (n > 0) {
			target[n] = 0;
			while (!strncmp(target + 3 * up, "../", 3) ||
				!strcmp(target + 3 * up, ".."))
				up++;
			if (target[0] == '/' || up > depth)
				fuzz_broken("a link that leads out of the directory");
		}
		if (unlinkat(dir, e->d_name, 0) && errno == EISDIR) {
			fchmodat(dir, e->d_name, 0700, 0);
			int sub = openat(
				dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			if (sub < 0)
				abort();
			directory_empty(sub, depth + 1);
			close(sub);
			unlinkat(dir, e->d_name, AT_REMOVEDIR);
		}
	}
	closedir(d);
}

static void outside_check(void)
{
	char bytes[16] = "";
	struct stat st;
	int fd = openat(outside_fd, "canary", O_RDONLY | O_CLOEXEC), entries = 0;
	if (fd < 0 || read(fd, bytes, sizeof(bytes)) != 9 || memcmp(bytes, "untouched", 9) ||
		fstat(fd, &st) || (st.st_mode & 0777) != 0600)
		fuzz_broken("what is beside the directory was touched");
	close(fd);
	DIR *d = fdopendir(dup(outside_fd));
	rewinddir(d);
	while (readdir(d))
		entries++;
	closedir(d);
	if (entries != 4)
		fuzz_broken("something was made beside the directory");
}

/* ---- what a sender says ---- */

static void say(rpw_endpoint *ep, const void *bytes, size_t len, uint64_t tag)
{
	if (ep && run.sends++ < SENDS_MAX)
		rpw_send(ep, bytes, len, tag, NULL);
}

static const char *some_name(void)
{
	static const char *const names[] = {"a", "b", "d", "d/a", "d/b", "d/d/a", "l", "l/a",
		"../canary", "..", ".", "", "/etc/x", "d/../a", "d//a", "a.ropeway-part", "d/l",
		"canary", ".x", ".d/a"};
	static char free_text[64];
	uint8_t b = fuzz_u8(&run.in);
	if (b < 224)
		return names[b % RPWI_ARRAY_LEN(names)];
	unsigned n = b % 60;
	for (unsigned i = 0; i < n; i++)
		free_text[i] = (char)fuzz_u8(&run.in);
	free_text[n] = 0;
	return free_text;
}

static uint64_t some_size(void)
{
	uint8_t b = fuzz_u8(&run.in);
	return b < 192   ? b * 8u
	       : b < 224 ? (uint64_t)b << 20
	       : b < 240 ? UINT64_MAX - b
			 : (uint64_t)b << 55;
}

static void control(rpw_endpoint *ep)
{
	static struct files_message m;
	static uint8_t bytes[FILES_MESSAGE_MAX + 8];
	uint8_t spoil = fuzz_u8(&run.in);
	m.type = (enum files_type)(1 + fuzz_u8(&run.in) % FILES_TYPES);
	snprintf(m.name, sizeof(m.name), "%s", some_name());
	snprintf(m.text, sizeof(m.text), "%s", m.type == FILES_LINK ? some_name() : "");
	m.number = spoil & 1;
	m.mode = 0600 | (spoil & 2 ? fuzz_u16(&run.in) & 07777 : 0);
	m.size = some_size();
	m.mtime_s = spoil & 4 ? (int64_t)some_size() : 1000;
	m.mtime_ns = 5;
	memset(m.hash, 0, sizeof(m.hash));
	m.data = spoil & 16 ? some_size() : run.data; /* what was sent, or something else */
	if (spoil & 8) {
		/* of zeros, which is what all files here have */
		struct files_sum sum;
		if (files_sum_open(&sum))
			abort();
		files_sum_hole(&sum, run.size & INT64_MAX);
		files_sum_end(&sum, m.hash);
		files_sum_close(&sum);
	}
	if (m.type == FILES_FILE) {
		run.size = m.size;
		run.data = run.offset = 0;
	}
	size_t len = files_pack(&m, bytes);
	if (spoil >= 208)
		bytes[fuzz_u8(&run.in) % len] = fuzz_u8(&run.in);
	if (spoil >= 240)
		len -= fuzz_u8(&run.in) % len;
	if (spoil >= 252)
		len = sizeof(bytes);
	say(ep, bytes, len, FILES_TAG_CONTROL);
}

static void bytes_of_file(rpw_endpoint *ep)
{
	static uint8_t bytes[8192];
	uint8_t b = fuzz_u8(&run.in), far = fuzz_u8(&run.in);
	size_t len = b < 192 ? b * 8u : fuzz_u16(&run.in) % (sizeof(bytes) - FILES_OFFSET_BYTES);
	uint64_t offset = far < 160 ? run.offset : far < 224 ? run.offset + far * 64u : some_size();
	rpwi_put_be64(bytes + len, offset);
	say(ep, bytes, far == 255 ? len : len + FILES_OFFSET_BYTES, FILES_TAG_DATA);
	memset(bytes + len, 0, FILES_OFFSET_BYTES);
	run.data += len;
	run.offset = offset + len;
}

static void on_accept(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	recv_session_begin(&run.r, ep);
}

static void progress(void)
{
	rpw_context_progress(run.c);
	rpw_context_progress(run.r.c);
	recv_session_work(&run.r, rpwi_now_ns());
}

static void connect_one(unsigned i)
{
	char address[32];
	snprintf(address, sizeof(address), "h:%d", rpw_listener_port(run.l));
	if (!run.ep[i] && rpw_endpoint_create(run.c, address, NULL, &run.ep[i], NULL) < 0)
		fuzz_broken("no connection");
	for (int n = 0; n < 6; n++)
		progress();
}

static void command(void)
{
	uint8_t b = fuzz_u8(&run.in);
	unsigned i = b >> 7;
	switch (b & 15) {
	case 0 ... 6:
		control(run.ep[i]);
		progress();
		progress();
		break;
	case 7 ... 9:
		bytes_of_file(run.ep[i]);
		break;
	case 10:
		if (fuzz_u8(&run.in) < 32) {
			rpw_endpoint_destroy(run.ep[i]);
			run.ep[i] = NULL;
		}
		break;
	case 11:
		connect_one(i);
		break;
	case 12:
		if (fuzz_u8(&run.in) < 16)
			recv_session_timers(&run.r,
				rpwi_now_ns() + (uint64_t)RECV_SILENT_MS * 2 * RPWI_NS_PER_MS);
		break;
	default:
		progress();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct store_why why;
	rpw_context_options o = {.size = sizeof(o), .transports = "fake_a"};
	memset(&run, 0, sizeof(run));
	run.in = (struct fuzz_input){data, len};
	rpwi_log_level_cached = RPWI_LOG_ERROR;
	fake = (struct fake_knobs){.rng = {1}, .eager_max = 2048, .frame_max = 8192};
	outside_make();
	char in[96];
	snprintf(in, sizeof(in), "%s/in", outside);
	if (mkdir(in, 0700) && errno != EEXIST)
		abort();
	run.r.store.overwrite = len & 1; /* both ways, as the length has it */
	run.r.quiet = true;
	if (store_open(&run.r.store, in, &why) || rpw_context_create(&o, &run.c) ||
		rpw_context_create(&o, &run.r.c) ||
		rpw_listener_create(run.r.c, ":0", on_accept, NULL, &run.l))
		fuzz_broken("nothing to begin with");
	connect_one(0);
	for (unsigned i = 0; run.in.left && i < COMMANDS_MAX; i++)
		command();
	for (int i = 0; i < 8; i++)
		progress();
	outside_check();
	recv_session_end_all(&run.r);
	rpw_context_destroy(run.r.c);
	rpw_context_destroy(run.c);
	for (int i = 0; i < RECV_SLOTS; i++)
		if (run.r.session[i])
			fuzz_broken("a session that never ended");
	directory_empty(run.r.store.root, 0);
	outside_check();
	close(run.r.store.root);
	return 0;
}

/* The end of the process takes the directory with it. */
__attribute__((destructor)) static void outside_remove(void)
{
	char path[96];
	if (outside_fd < 0)
		return;
	snprintf(path, sizeof(path), "%s/in", outside);
	rmdir(path);
	unlinkat(outside_fd, "canary", 0);
	rmdir(outside);
}
