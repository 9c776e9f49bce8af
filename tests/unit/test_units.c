/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "cli/units.h"

struct good {
	const char *text;
	uint64_t value;
};

static char text[UNITS_TEXT_BYTES];

Test(units, bytes_with_and_without_unit)
{
	static const struct good rows[] = {{"0", 0}, {"17", 17}, {"17B", 17}, {"4KiB", 4096}, {"1.5MiB", 3u << 19},
		{"64 MiB", 64u << 20}, {"1MB", 1000000}, {"2GiB", 2ull << 30}, {"3TB", 3000000000000},
		{"18446744073709551615", UINT64_MAX}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t v = 1;

		cr_expect_eq(units_parse_bytes(rows[i].text, &v), 0, "%s", rows[i].text);
		cr_expect_eq(v, rows[i].value, "%s", rows[i].text);
	}
}

Test(units, nonsense_is_refused_and_writes_nothing)
{
	static const char *const rows[] = {"", "-1", "x", "1.5", "4mib", "4MiB ", "1e3", "1.", ".5MiB",
		"18446744073709551616", "17179869184GiB", "1.0000001GB", "4 4MiB", "+1"};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t v = 42;

		cr_expect_eq(units_parse_bytes(rows[i], &v), -EINVAL, "%s", rows[i]);
		cr_expect_eq(v, 42, "%s", rows[i]);
	}
}

Test(units, rates_need_their_unit)
{
	uint64_t v = 7;

	cr_assert_eq(units_parse_rate("125MB/s", &v), 0);
	cr_assert_eq(v, 125000000);
	cr_assert_eq(units_parse_rate("1Gbit/s", &v), 0);
	cr_assert_eq(v, 125000000);
	cr_assert_eq(units_parse_rate("2MiB/s", &v), 0);
	cr_assert_eq(v, 2097152);
	cr_assert_eq(units_parse_rate("0", &v), 0);
	cr_assert_eq(v, 0);
	cr_assert_eq(units_parse_rate("125", &v), -EINVAL);
	cr_assert_eq(units_parse_rate("125MB", &v), -EINVAL);
}

Test(units, durations_need_their_unit)
{
	uint64_t v = 7;

	cr_assert_eq(units_parse_duration("1.5s", &v), 0);
	cr_assert_eq(v, 1500000000);
	cr_assert_eq(units_parse_duration("5us", &v), 0);
	cr_assert_eq(v, 5000);
	cr_assert_eq(units_parse_duration("2min", &v), 0);
	cr_assert_eq(v, 120000000000);
	cr_assert_eq(units_parse_duration("5", &v), -EINVAL);
	cr_assert_eq(units_parse_duration("99999999h", &v), -EINVAL);
}

Test(units, counts_are_whole)
{
	uint64_t v = 7;

	cr_assert_eq(units_parse_count("12", &v), 0);
	cr_assert_eq(v, 12);
	cr_assert_eq(units_parse_count("1.0", &v), -EINVAL);
	cr_assert_eq(units_parse_count("1k", &v), -EINVAL);
	cr_assert_eq(units_parse_count("", &v), -EINVAL);
}

Test(units, sizes_are_printed_binary)
{
	cr_expect_str_eq(units_print_bytes(0, text), "0 B");
	cr_expect_str_eq(units_print_bytes(1023, text), "1023 B");
	cr_expect_str_eq(units_print_bytes(64u << 20, text), "64 MiB");
	cr_expect_str_eq(units_print_bytes((64u << 20) + (1u << 19), text), "64.5 MiB");
	cr_expect_str_eq(units_print_bytes(3u << 29, text), "1.50 GiB");
	cr_expect_str_eq(units_print_bytes(UINT64_MAX, text), "16777216.0 TiB");
}

Test(units, rates_and_times_are_printed_decimal)
{
	cr_expect_str_eq(units_print_rate(125000000, text), "125 MB/s");
	cr_expect_str_eq(units_print_rate(247123456, text), "247.1 MB/s");
	cr_expect_str_eq(units_print_rate(1234, text), "1.23 kB/s");
	cr_expect_str_eq(units_print_duration(999, text), "999 ns");
	cr_expect_str_eq(units_print_duration(1320000, text), "1.32 ms");
	cr_expect_str_eq(units_print_duration(1000000000, text), "1 s");
	cr_expect_str_eq(units_print_duration(90000000000, text), "1.50 min");
}

/* What is printed without a fraction is read back as the same number. */
Test(units, whole_units_come_back)
{
	for (uint64_t v = 1; v < 1ull << 44; v <<= 1) {
		uint64_t back = 0;

		cr_expect_eq(units_parse_bytes(units_print_bytes(v, text), &back), 0);
		cr_expect_eq(back, v, "%s", text);
	}
}
