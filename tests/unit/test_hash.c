/* SPDX-License-Identifier: BSD-3-Clause */
#include "hash/hash.h"

#include <criterion/criterion.h>

#include <stdlib.h>

#define LARGEST (300u << 10)

static uint8_t *pattern(void)
{
	uint8_t *p = malloc(LARGEST);

	cr_assert(p);
	for (unsigned i = 0; i < LARGEST; i++)
		p[i] = (uint8_t)(i * 131 + (i >> 8) * 17);
	return p;
}

/* A stripe may be hashed by one and compared with what the other said: a store and a reader are different hosts. */
Test(hash, both_codes_say_what_xxh3_says)
{
	unsigned sizes[] = {0, 1, 3, 8, 16, 17, 128, 129, 240, 241, 1024, 1025, 65536, 65537, LARGEST};
	uint8_t *p = pattern();

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		XXH64_hash_t want = XXH3_64bits(p, sizes[i]);

		cr_assert_eq(hash_scalar.whole(p, sizes[i]), want, "scalar, %u bytes", sizes[i]);
		cr_assert_eq(hash_simd.whole(p, sizes[i]), want, "SIMD, %u bytes", sizes[i]);
	}
	free(p);
}

Test(hash, a_stream_may_change_codes_between_any_two_pieces)
{
	const struct hash_code *codes[] = {&hash_scalar, &hash_simd};
	uint8_t *p = pattern();

	for (unsigned step = 1; step < LARGEST; step = step * 3 + 1) {
		XXH3_state_t state;
		unsigned turn = 0;

		XXH3_64bits_reset(&state);
		for (unsigned at = 0; at < LARGEST; at += step, turn++)
			codes[turn & 1]->update(&state, p + at, LARGEST - at < step ? LARGEST - at : step);
		cr_assert_eq(XXH3_64bits_digest(&state), XXH3_64bits(p, LARGEST), "pieces of %u bytes", step);
	}
	free(p);
}

/* Which one it is depends on the CPU; every rail of the process has the same. */
Test(hash, the_choice_is_the_faster_and_stays)
{
	const struct hash_choice *c = hash_choose();

	cr_assert_gt(c->simd_bytes_per_s, 0);
	cr_assert_gt(c->scalar_bytes_per_s, 0);
	cr_assert_eq(c->code, c->scalar_bytes_per_s > c->simd_bytes_per_s ? &hash_scalar : &hash_simd);
	for (int i = 0; i < 20; i++)
		cr_assert_eq(hash_choose()->code, c->code);
}
