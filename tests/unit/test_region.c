/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/mem.h"

#include <criterion/criterion.h>

#include <errno.h>

/* A rail that counts what is registered on it, and refuses when told. */
struct fake_rail {
	uint32_t next_key;
	int n_registered;
	int fail_with;
	uint32_t last_dereg;
	uint64_t bytes;
	enum mem_kind kind;
};

static int fake_reg(void *rail, void *base, uint64_t bytes, enum mem_kind kind, uint32_t *lkey)
{
	struct fake_rail *f = rail;

	if (f->fail_with)
		return f->fail_with;
	f->n_registered++;
	f->bytes = bytes;
	f->kind = kind;
	*lkey = f->next_key++;
	return 0;
}

static void fake_dereg(void *rail, uint32_t lkey)
{
	struct fake_rail *f = rail;

	f->n_registered--;
	f->last_dereg = lkey;
}

static struct fake_rail fakes[4];
static struct region_rail rails[4];
static uint8_t memory[4096];

static void setup(void)
{
	for (uint32_t i = 0; i < 4; i++) {
		fakes[i] = (struct fake_rail){.next_key = 100 * (i + 1)};
		rails[i] = (struct region_rail){&fakes[i], fake_reg, fake_dereg, true};
	}
}

TestSuite(region, .init = setup);

Test(region, registers_everywhere_with_a_key_per_rail)
{
	struct region *r;

	cr_assert_eq(region_register(rails, 4, memory, sizeof(memory), MEM_DEVICE, &r), 0);
	for (uint16_t i = 0; i < 4; i++) {
		cr_assert_eq(fakes[i].n_registered, 1);
		cr_assert_eq(fakes[i].bytes, sizeof(memory));
		cr_assert_eq(fakes[i].kind, MEM_DEVICE);
		cr_assert_eq(region_lkey(r, i), 100u * (i + 1u));
	}
	cr_assert_eq(region_lkey(r, 4), 0);
	region_unregister(r);
	for (int i = 0; i < 4; i++) {
		cr_assert_eq(fakes[i].n_registered, 0);
		cr_assert_eq(fakes[i].last_dereg, 100u * ((unsigned)i + 1u));
	}
}

Test(region, one_refusal_undoes_all_and_names_the_cause)
{
	for (int bad = 0; bad < 4; bad++) {
		struct region *r = NULL;

		setup();
		fakes[bad].fail_with = -EPERM - bad;
		cr_assert_eq(region_register(rails, 4, memory, sizeof(memory), MEM_HOST, &r), -EPERM - bad);
		cr_assert_null(r, "written only on success");
		for (int i = 0; i < 4; i++) {
			cr_assert_eq(fakes[i].n_registered, 0, "rail %d", i);
			cr_assert_eq(fakes[i].last_dereg, i < bad ? 100u * ((unsigned)i + 1u) : 0, "rail %d", i);
		}
	}
}

Test(region, the_same_memory_registers_anew)
{
	struct region *r;

	for (int i = 0; i < 3; i++) {
		cr_assert_eq(region_register(rails, 2, memory, sizeof(memory), MEM_HOST, &r), 0);
		cr_assert_eq(region_lkey(r, 0), 100u + (unsigned)i, "no cache by address: a fresh key every time");
		region_unregister(r);
	}
}

Test(region, covers_exactly_its_range)
{
	struct region *r;

	cr_assert_eq(region_register(rails, 1, memory + 1000, 100, MEM_HOST, &r), 0);
	cr_assert(region_covers(r, memory + 1000, 100));
	cr_assert(region_covers(r, memory + 1099, 1));
	cr_assert(region_covers(r, memory + 1100, 0));
	cr_assert_not(region_covers(r, memory + 1100, 1));
	cr_assert_not(region_covers(r, memory + 999, 1));
	cr_assert_not(region_covers(r, memory + 1000, 101));
	cr_assert_not(region_covers(r, memory + 1050, UINT64_MAX));
	cr_assert_not(region_covers(NULL, memory, 1));
	region_unregister(r);
}

Test(region, senseless_arguments_are_refused)
{
	struct region *r = NULL;

	cr_assert_eq(region_register(rails, 1, NULL, 5, MEM_HOST, &r), -EINVAL);
	cr_assert_eq(region_register(rails, 1, memory, 0, MEM_HOST, &r), -EINVAL);
	cr_assert_eq(region_register(rails, 1, memory, UINT64_MAX, MEM_HOST, &r), -EINVAL);
	cr_assert_eq(region_register(rails, RY_RAILS_MAX + 1, memory, 5, MEM_HOST, &r), -EINVAL);
	cr_assert_null(r);
	region_unregister(NULL);
}

Test(region, device_memory_is_registered_where_it_is_reached)
{
	struct region *r;

	rails[0].reaches_device = rails[2].reaches_device = false;
	cr_assert_eq(region_register(rails, 4, memory, sizeof(memory), MEM_DEVICE, &r), 0);
	cr_assert(!fakes[0].n_registered && fakes[1].n_registered && !fakes[2].n_registered && fakes[3].n_registered);
	cr_assert_eq(region_reach(r), 0xau);
	cr_assert(region_lkey(r, 0) == 0 && region_lkey(r, 1) == 200);
	region_unregister(r);
	cr_assert(!fakes[0].n_registered && !fakes[1].n_registered && !fakes[3].n_registered);
	cr_assert_eq(region_register(rails, 4, memory, sizeof(memory), MEM_HOST, &r), 0);
	cr_assert_eq(region_reach(r), 0xfu);
	region_unregister(r);
	cr_assert_eq(region_reach(NULL), UINT32_MAX);
}

Test(region, device_memory_that_no_rail_reaches_is_refused)
{
	struct region *r = NULL;

	for (int i = 0; i < 4; i++)
		rails[i].reaches_device = false;
	cr_assert_eq(region_register(rails, 4, memory, sizeof(memory), MEM_DEVICE, &r), -ENOTSUP);
	cr_assert_null(r);
}
