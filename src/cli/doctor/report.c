/* SPDX-License-Identifier: BSD-3-Clause */
/* report.c - the verdicts that a doctor collects, and the same as JSON between two of them. */
#include "cli/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>

const char *const doctor_level_name[] = {
	[DOCTOR_OK] = "ok", [DOCTOR_WARN] = "warn", [DOCTOR_FAIL] = "FAIL"};

static const char *const side_names[] = {
	[DOCTOR_HERE] = "local", [DOCTOR_THERE] = "peer", [DOCTOR_BETWEEN] = "between"};

void doctor_add(struct doctor_report *r, enum doctor_level level, const char *what,
	const char *remedy, const char *fmt, ...)
{
	struct doctor_verdict *v = &r->verdict[r->count];
	va_list ap;

	if (r->count == DOCTOR_VERDICTS_MAX)
		return;
	r->count++;
	*v = (struct doctor_verdict){.level = level, .side = r->side};
	/* a peer may have said any of the three */
	rpwi_cli_printable(what, v->what, sizeof(v->what));
	rpwi_cli_printable(
		remedy && level != DOCTOR_OK ? remedy : "", v->remedy, sizeof(v->remedy));
	va_start(ap, fmt);
	vsnprintf(v->text, sizeof(v->text), fmt, ap);
	va_end(ap);
	rpwi_cli_printable(v->text, v->text, sizeof(v->text));
}

json_t *doctor_json(const struct doctor_report *r)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < r->count; i++) {
		const struct doctor_verdict *v = &r->verdict[i];
		json_array_append_new(
			list, json_pack("{s:s, s:s, s:s, s:s, s:o}", "verdict",
				      doctor_level_name[v->level], "side", side_names[v->side],
				      "what", v->what, "text", v->text, "remedy",
				      v->remedy[0] ? json_string(v->remedy) : json_null()));
	}
	return list;
}

int doctor_take_json(struct doctor_report *r, const json_t *verdicts)
{
	const char *level, *what, *text;
	json_t *remedy, *v;
	size_t i;

	if (!json_is_array(verdicts))
		return -1;
	json_array_foreach(verdicts, i, v)
	{
		if (json_unpack(v, "{s:s, s:s, s:s, s:o}", "verdict", &level, "what", &what, "text",
			    &text, "remedy", &remedy))
			return -1;
		int n = 0;
		while (n < (int)RPWI_ARRAY_LEN(doctor_level_name) &&
			strcmp(doctor_level_name[n], level) != 0)
			n++;
		if (n == (int)RPWI_ARRAY_LEN(doctor_level_name) || r->count == DOCTOR_VERDICTS_MAX)
			return -1;
		doctor_add(r, n, what, json_string_value(remedy), "%s", text);
	}
	return 0;
}

const char *doctor_last_error(char out[DOCTOR_ERROR_LEN])
{
	snprintf(out, DOCTOR_ERROR_LEN, "%s", rpw_last_error());
	char *advice = strstr(out, " (ropeway doctor");
	if (advice)
		*advice = '\0';
	return out;
}
