/* SPDX-License-Identifier: BSD-3-Clause */
/* Fault plans: any text is taken or refused with a reason; what is taken is valid, and printing and reading undo each
 * other. */
#include "fuzz.h"
#include "transport/mock/fault.h"

static void text(struct fuzz_in *in);
static void plan(struct fuzz_in *in);
static void comes_back(const struct fault_plan *p);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_in in = {data, bytes};

	/* Texts begin with a letter, mostly: so their seeds are just texts. */
	if (bytes && data[0] == 0)
		plan(&in);
	else
		text(&in);
	return 0;
}

static void text(struct fuzz_in *in)
{
	struct fault_plan p, before;
	char message[256] = "";
	char *t = malloc(in->left + 1);
	size_t n = in->left;

	fuzz_bytes(in, t, n);
	t[n] = 0;
	memset(&p, 0x5a, sizeof(p));
	before = p;
	if (fault_parse(t, &p, message, sizeof(message)) == 0) {
		comes_back(&p);
	} else {
		FUZZ_CHECK(message[0] && memchr(message, 0, sizeof(message)), "refused without a reason");
		FUZZ_CHECK(!memcmp(&p, &before, sizeof(p)), "written although refused");
	}
	free(t);
}

/* A plan as a struct. */
static void plan(struct fuzz_in *in)
{
	struct fault_plan p = {0};
	char message[256] = "";

	fuzz_number(in, 1);
	p.n_entries = 1 + (uint32_t)fuzz_number(in, 1) % FAULT_ENTRIES_MAX;
	p.seed = fuzz_number(in, 8);
	for (uint32_t i = 0; i < p.n_entries; i++) {
		struct fault_entry *e = &p.entries[i];

		e->kind = (uint8_t)fuzz_number(in, 1);
		e->trigger = (uint8_t)fuzz_number(in, 1);
		e->of = (uint8_t)fuzz_number(in, 1);
		e->is_unguarded = (uint8_t)fuzz_number(in, 1) & 1;
		e->chance_ppm = (uint32_t)fuzz_number(in, 4);
		e->repeat = (uint32_t)fuzz_number(in, 4);
		e->at = fuzz_number(in, 8);
		e->every = fuzz_number(in, 8);
		e->arg = fuzz_number(in, 8);
		e->for_ns = fuzz_number(in, 8);
	}
	if (fault_check(&p, message, sizeof(message)) == 0)
		comes_back(&p);
	else
		FUZZ_CHECK(message[0], "refused without a reason");
}

static void comes_back(const struct fault_plan *p)
{
	char t[FAULT_TEXT_BYTES], message[256] = "";
	struct fault_plan back;
	uint32_t n;

	FUZZ_CHECK(fault_check(p, message, sizeof(message)) == 0, "taken, and not valid: %s", message);
	n = fault_format(p, t, sizeof(t));
	FUZZ_CHECK(n < sizeof(t) && n == strlen(t), "%u characters", n);
	FUZZ_CHECK(fault_parse(t, &back, message, sizeof(message)) == 0, "%s: %s", t, message);
	FUZZ_CHECK(back.seed == p->seed && back.n_entries == p->n_entries, "%s", t);
	FUZZ_CHECK(!memcmp(back.entries, p->entries, p->n_entries * sizeof(p->entries[0])), "%s", t);
}
