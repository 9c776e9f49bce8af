/* SPDX-License-Identifier: BSD-3-Clause */
#include "eal_priv.h"

#include <rte_lcore.h>

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_number(const char **at, int *out);
static int read_range(const char **at, cpu_set_t *set);
static int read_group(const char **at, cpu_set_t *set, bool *is_single);
static int append(char *buf, uint32_t buf_bytes, int used, const char *format, int a, int b);

int lcores_parse_list(const char *text, struct lcore_request *out)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	do {
		if (read_range(&text, &set))
			return -EINVAL;
	} while (*text++ == ',');
	if (text[-1])
		return -EINVAL;
	out->lcores = set;
	out->cpus = set;
	return 0;
}

int lcores_parse_mask(const char *text, struct lcore_request *out)
{
	const char *digits = strncmp(text, "0x", 2) && strncmp(text, "0X", 2) ? text : text + 2;
	size_t n = strlen(digits);
	cpu_set_t set;

	CPU_ZERO(&set);
	if (n == 0 || n > CPU_SETSIZE / 4)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		char digit[2] = {digits[n - 1 - i], 0};
		char *end;
		unsigned long bits = strtoul(digit, &end, 16);

		if (end == digit)
			return -EINVAL;
		for (unsigned b = 0; b < 4; b++)
			if (bits >> b & 1)
				CPU_SET(i * 4 + b, &set);
	}
	if (CPU_COUNT(&set) == 0)
		return -EINVAL;
	out->lcores = set;
	out->cpus = set;
	return 0;
}

int lcores_parse_map(const char *text, struct lcore_request *out)
{
	struct lcore_request r;

	CPU_ZERO(&r.lcores);
	CPU_ZERO(&r.cpus);
	do {
		cpu_set_t lcores, cpus;
		bool is_single;

		CPU_ZERO(&lcores);
		CPU_ZERO(&cpus);
		if (read_group(&text, &lcores, &is_single))
			return -EINVAL;
		if (*text == '@') {
			text++;
			if (!is_single || read_group(&text, &cpus, &is_single) || !is_single)
				return -EINVAL;
		} else {
			cpus = lcores;
		}
		CPU_OR(&r.lcores, &r.lcores, &lcores);
		CPU_OR(&r.cpus, &r.cpus, &cpus);
	} while (*text++ == ',');
	if (text[-1])
		return -EINVAL;
	*out = r;
	return 0;
}

bool lcores_can_run_on(int cpu)
{
	cpu_set_t before, one;
	bool can;

	if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof(before), &before))
		return false;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	can = sched_setaffinity(0, sizeof(one), &one) == 0;
	sched_setaffinity(0, sizeof(before), &before);
	return can;
}

int lcores_cpu_list(char *buf, uint32_t buf_bytes)
{
	cpu_set_t set;
	int used = 0;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 0;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		int first = i;

		if (!CPU_ISSET(i, &set))
			continue;
		while (i + 1 < CPU_SETSIZE && CPU_ISSET(i + 1, &set))
			i++;
		if (used)
			used = append(buf, buf_bytes, used, ",", 0, 0);
		used = append(buf, buf_bytes, used, first == i ? "%d" : "%d-%d", first, i);
	}
	return CPU_COUNT(&set);
}

int eal_lcore_map(uint16_t n_lcores, char *buf, uint32_t buf_bytes)
{
	char cpus[1024] = "0";
	cpu_set_t set;
	int used = 0, lcore = 0;

	if (n_lcores == 0 || n_lcores > RTE_MAX_LCORE)
		return -EINVAL;
	if (lcores_cpu_list(cpus, sizeof(cpus)) < n_lcores)
		return snprintf(buf, buf_bytes, "(0-%d)@(%s)", n_lcores - 1, cpus);
	/* Ids from 0 whatever the CPUs are called, so that rail i always runs on lcore i + 1. */
	sched_getaffinity(0, sizeof(set), &set);
	for (int cpu = 0; cpu < CPU_SETSIZE && lcore < n_lcores; cpu++) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		used = append(buf, buf_bytes, used, lcore ? ",%d@%d" : "%d@%d", lcore, cpu);
		lcore++;
	}
	return used;
}

bool lcores_are_shared(void)
{
	rte_cpuset_t taken;
	unsigned lcore;

	CPU_ZERO(&taken);
	RTE_LCORE_FOREACH(lcore)
	{
		rte_cpuset_t own = rte_lcore_cpuset(lcore), both;

		CPU_AND(&both, &own, &taken);
		if (CPU_COUNT(&own) != 1 || CPU_COUNT(&both))
			return true;
		CPU_OR(&taken, &taken, &own);
	}
	return false;
}

static int read_number(const char **at, int *out)
{
	char *end;
	unsigned long v;

	while (**at == ' ')
		(*at)++;
	if (!isdigit((unsigned char)**at))
		return -EINVAL;
	v = strtoul(*at, &end, 10);
	if (v >= CPU_SETSIZE)
		return -EINVAL;
	while (*end == ' ')
		end++;
	*at = end;
	*out = (int)v;
	return 0;
}

/* a or a-b */
static int read_range(const char **at, cpu_set_t *set)
{
	int first, last;

	if (read_number(at, &first))
		return -EINVAL;
	last = first;
	if (**at == '-') {
		(*at)++;
		if (read_number(at, &last))
			return -EINVAL;
	}
	if (last < first)
		return -EINVAL;
	for (int i = first; i <= last; i++)
		CPU_SET((size_t)i, set);
	return 0;
}

/* (a,b-c) or a or a-b; EAL takes no bare range on either side of '@', hence is_single. */
static int read_group(const char **at, cpu_set_t *set, bool *is_single)
{
	while (**at == ' ')
		(*at)++;
	if (**at != '(') {
		if (read_range(at, set))
			return -EINVAL;
		*is_single = CPU_COUNT(set) == 1;
		return 0;
	}
	do {
		(*at)++;
		if (read_range(at, set))
			return -EINVAL;
	} while (**at == ',');
	*is_single = true;
	return *(*at)++ == ')' ? 0 : -EINVAL;
}

/* snprintf behind what is there; the length goes on counting when the buffer is full. */
static int append(char *buf, uint32_t buf_bytes, int used, const char *format, int a, int b)
{
	bool fits = (uint32_t)used < buf_bytes;

	return used + snprintf(fits ? buf + used : NULL, fits ? buf_bytes - (uint32_t)used : 0, format, a, b);
}
