/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/mem.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <string.h>

/* A rail that counts what is registered on it, and refuses when told. */
struct fake_rail {
	int n_registered;
	int fail_with;
	int last_reg;
	int last_dereg; /* -1 = none */
	uint64_t bytes;
	enum mem_kind kind;
};

static int fake_reg(void *rail, void *base, uint64_t bytes, enum mem_kind kind, uint16_t idx)
{
	struct fake_rail *f = rail;

	if (f->fail_with)
		return f->fail_with;
	f->n_registered++;
	f->bytes = bytes;
	f->kind = kind;
	f->last_reg = idx;
	return 0;
}

static void fake_dereg(void *rail, uint16_t idx)
{
	struct fake_rail *f = rail;

	f->n_registered--;
	f->last_dereg = idx;
}

static struct fake_rail fakes[4];
static struct region_set set;
static uint8_t memory[4096];

static void setup(void)
{
	memset(&set, 0, sizeof(set));
	set.n_rails = 4;
	for (uint32_t i = 0; i < 4; i++) {
		fakes[i] = (struct fake_rail){.last_dereg = -1};
		set.rails[i] = (struct region_rail){&fakes[i], fake_reg, fake_dereg, true};
	}
}

TestSuite(region, .init = setup);

Test(region, registers_everywhere_under_one_number)
{
	struct region *r;

	cr_assert_eq(region_register(&set, memory, sizeof(memory), MEM_DEVICE, &r), 0);
	for (uint16_t i = 0; i < 4; i++) {
		cr_assert_eq(fakes[i].n_registered, 1);
		cr_assert_eq(fakes[i].bytes, sizeof(memory));
		cr_assert_eq(fakes[i].kind, MEM_DEVICE);
		cr_assert_eq(region_idx(r), fakes[i].last_reg);
	}
	cr_assert_eq(region_idx(NULL), REGION_NONE);
	region_unregister(r);
	for (int i = 0; i < 4; i++) {
		cr_assert_eq(fakes[i].n_registered, 0);
		cr_assert_eq(fakes[i].last_dereg, fakes[i].last_reg);
	}
}

Test(region, one_refusal_undoes_all_and_names_the_cause)
{
	for (int bad = 0; bad < 4; bad++) {
		struct region *r = NULL;

		setup();
		fakes[bad].fail_with = -EPERM - bad;
		cr_assert_eq(region_register(&set, memory, sizeof(memory), MEM_HOST, &r), -EPERM - bad);
		cr_assert_null(r, "written only on success");
		for (int i = 0; i < 4; i++) {
			cr_assert_eq(fakes[i].n_registered, 0, "rail %d", i);
			cr_assert_eq(fakes[i].last_dereg, i < bad ? 0 : -1, "rail %d", i);
		}
	}
}

Test(region, the_same_memory_registers_anew)
{
	struct region *r, *s;

	cr_assert_eq(region_register(&set, memory, sizeof(memory), MEM_HOST, &r), 0);
	cr_assert_eq(region_register(&set, memory, sizeof(memory), MEM_HOST, &s), 0);
	cr_assert(region_idx(r) != region_idx(s) && fakes[0].n_registered == 2, "no cache by address");
	region_unregister(r);
	region_unregister(s);
}

Test(region, numbers_are_bounded_and_come_back)
{
	static struct region *r[REGIONS_MAX];
	struct region *more = NULL;

	for (unsigned i = 0; i < REGIONS_MAX; i++) {
		cr_assert_eq(region_register(&set, memory, 64, MEM_HOST, &r[i]), 0);
		cr_assert_eq(region_idx(r[i]), i);
	}
	cr_assert_eq(region_register(&set, memory, 64, MEM_HOST, &more), -ENOSPC);
	region_unregister(r[777]);
	cr_assert_eq(region_register(&set, memory, 64, MEM_HOST, &more), 0);
	cr_assert_eq(region_idx(more), 777);
	r[777] = more;
	for (unsigned i = 0; i < REGIONS_MAX; i++)
		region_unregister(r[i]);
	cr_assert_eq(fakes[3].n_registered, 0);
}

Test(region, covers_exactly_its_range)
{
	struct region *r;

	cr_assert_eq(region_register(&set, memory + 1000, 100, MEM_HOST, &r), 0);
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

	cr_assert_eq(region_register(&set, NULL, 5, MEM_HOST, &r), -EINVAL);
	cr_assert_eq(region_register(&set, memory, 0, MEM_HOST, &r), -EINVAL);
	cr_assert_eq(region_register(&set, memory, UINT64_MAX, MEM_HOST, &r), -EINVAL);
	cr_assert_null(r);
	region_unregister(NULL);
}

Test(region, device_memory_is_registered_where_it_is_reached)
{
	struct region *r;

	set.rails[0].reaches_device = set.rails[2].reaches_device = false;
	cr_assert_eq(region_register(&set, memory, sizeof(memory), MEM_DEVICE, &r), 0);
	cr_assert(!fakes[0].n_registered && fakes[1].n_registered && !fakes[2].n_registered && fakes[3].n_registered);
	cr_assert_eq(region_reach(r), 0xau);
	region_unregister(r);
	cr_assert(!fakes[0].n_registered && !fakes[1].n_registered && !fakes[3].n_registered);
	cr_assert_eq(region_register(&set, memory, sizeof(memory), MEM_HOST, &r), 0);
	cr_assert_eq(region_reach(r), 0xfu);
	region_unregister(r);
	cr_assert_eq(region_reach(NULL), UINT32_MAX);
}

Test(region, device_memory_that_no_rail_reaches_is_refused)
{
	struct region *r = NULL;

	for (int i = 0; i < 4; i++)
		set.rails[i].reaches_device = false;
	cr_assert_eq(region_register(&set, memory, sizeof(memory), MEM_DEVICE, &r), -ENOTSUP);
	cr_assert_null(r);
}

static const char *fake_why(const void *rail)
{
	return ((const struct fake_rail *)rail)->fail_with == -E2BIG ? "device x registers at most 5 bytes" : "";
}

Test(region, a_refusal_is_told_in_the_words_of_the_rail_that_refused)
{
	struct region *r;

	for (int i = 0; i < 4; i++)
		set.rails[i].why = fake_why;
	fakes[2].fail_with = -E2BIG;
	cr_assert_eq(region_register(&set, memory, sizeof(memory), MEM_HOST, &r), -E2BIG);
	cr_assert_str_eq(region_why(&set, -E2BIG), "device x registers at most 5 bytes");
	fakes[2].fail_with = -ENOMEM;
	cr_assert_eq(region_register(&set, memory, sizeof(memory), MEM_HOST, &r), -ENOMEM);
	cr_assert_str_eq(region_why(&set, -ENOMEM), strerror(ENOMEM), "it says nothing");
	set.rails[2].why = NULL;
	cr_assert_str_eq(region_why(&set, -ENOMEM), strerror(ENOMEM), "it cannot say anything");
	fakes[2].fail_with = -E2BIG;
	cr_assert_eq(region_register(&set, NULL, 1, MEM_HOST, &r), -EINVAL);
	set.rails[2].why = fake_why;
	cr_assert_str_eq(region_why(&set, -EINVAL), strerror(EINVAL), "no rail was asked");
}

Test(region, every_rail_that_pins_is_charged_for_itself)
{
	cr_assert_eq(region_pinned_bytes(&set, 10), 0);
	set.rails[1].pins = set.rails[3].pins = true;
	cr_assert_eq(region_pinned_bytes(&set, 10), 20);
}

/* A rail whose device has left takes no part; the others do. */
Test(region, passes_over_a_rail_whose_device_has_left)
{
	struct region *r;

	fakes[2].fail_with = -ENODEV;
	cr_assert_eq(region_register(&set, memory, sizeof(memory), MEM_HOST, &r), 0);
	cr_assert_eq(region_reach(r), 0xbu);
	region_unregister(r);
	cr_assert(!fakes[0].n_registered && !fakes[2].n_registered && fakes[2].last_dereg == -1);
	for (int i = 0; i < 4; i++)
		fakes[i].fail_with = -ENODEV;
	cr_assert_eq(region_register(&set, memory, sizeof(memory), MEM_HOST, &r), -ENODEV, "there is none left");
}

/* Its device is back: what is registered now, not what was. */
Test(region, registers_all_that_there_is_on_a_rail_that_came_back)
{
	struct region *before, *gone, *meanwhile;

	cr_assert_eq(region_register(&set, memory, 100, MEM_HOST, &before), 0);
	cr_assert_eq(region_register(&set, memory, 200, MEM_HOST, &gone), 0);
	fakes[2].n_registered = 0; /* with the device */
	fakes[2].fail_with = -ENODEV;
	cr_assert_eq(region_register(&set, memory, 300, MEM_HOST, &meanwhile), 0);
	region_unregister(gone);
	fakes[2] = (struct fake_rail){.fail_with = 0};
	cr_assert_eq(region_register_on(&set, 2), 0);
	cr_assert_eq(fakes[2].n_registered, 2);
	cr_assert(region_reach(before) == 0xfu && region_reach(meanwhile) == 0xfu);
	region_unregister(before);
	region_unregister(meanwhile);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(fakes[i].n_registered, 0);
	cr_assert_eq(region_register_on(&set, 2), 0, "there is none");
	cr_assert_eq(fakes[2].n_registered, 0);
}

Test(region, a_rail_that_does_not_take_all_of_them_is_in_no_further_reach)
{
	struct region *r, *s;

	fakes[1].fail_with = -ENODEV;
	cr_assert_eq(region_register(&set, memory, 100, MEM_HOST, &r), 0);
	cr_assert_eq(region_register(&set, memory, 200, MEM_HOST, &s), 0);
	fakes[1].fail_with = -E2BIG;
	set.rails[1].why = fake_why;
	cr_assert_eq(region_register_on(&set, 1), -E2BIG);
	cr_assert_str_eq(region_why(&set, -E2BIG), "device x registers at most 5 bytes");
	cr_assert(region_reach(r) == 0xdu && region_reach(s) == 0xdu);
	region_unregister(r);
	region_unregister(s);
}

Test(region, a_rail_that_came_back_reaches_what_it_reached)
{
	struct region *r;

	set.rails[2].reaches_device = false;
	cr_assert_eq(region_register(&set, memory, sizeof(memory), MEM_DEVICE, &r), 0);
	cr_assert_eq(region_register_on(&set, 2), 0);
	cr_assert(fakes[2].n_registered == 0 && region_reach(r) == 0xbu);
	region_unregister(r);
}
