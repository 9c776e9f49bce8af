/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/demo.h"

#define CHUNK_WORDS 32768u

static void fill(uint64_t *words, uint32_t n, uint64_t *state);
static bool write_all(int fd, const void *data, size_t bytes);

bool demo_open_file(struct demo *d)
{
	struct stat st;

	d->path = d->c->file;
	d->fd = open(d->path, O_RDONLY | O_CLOEXEC);
	if (d->fd < 0 || fstat(d->fd, &st) < 0)
		return demo_fail(d, RY_ERR_INVALID, "cannot open %s: %s", d->path, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size == 0)
		return demo_fail(d, RY_ERR_INVALID, "%s is %s: give a file with something in it", d->path,
			S_ISREG(st.st_mode) ? "empty" : "not a regular file");
	d->size_bytes = (uint64_t)st.st_size;
	return true;
}

/* The same bytes every time, and no two alike stripes: a stripe in the wrong place would show. */
bool demo_make_file(struct demo *d)
{
	uint64_t *words = malloc(CHUNK_WORDS * sizeof(*words)), state = 1, left = d->size_bytes;
	char path[PATH_MAX];
	bool good = words != NULL;

	snprintf(path, sizeof(path), "%s/demo.bin", launch_directory(d->launch));
	d->path = "a generated file";
	d->fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	good = good && d->fd >= 0;
	while (good && left > 0) {
		size_t n = left < CHUNK_WORDS * sizeof(*words) ? (size_t)left : CHUNK_WORDS * sizeof(*words);

		fill(words, CHUNK_WORDS, &state);
		good = write_all(d->fd, words, n);
		left -= n;
	}
	free(words);
	return good || demo_fail(d, RY_ERR_NO_SPACE, "cannot write %s: %s", path, strerror(errno));
}

/* A 64-bit multiplicative congruential generator's high half, mixed: cheap, and incompressible enough. */
static void fill(uint64_t *words, uint32_t n, uint64_t *state)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		*state = *state * 6364136223846793005ull + 1442695040888963407ull;
		words[i] = *state ^ (*state >> 29);
	}
}

static bool write_all(int fd, const void *data, size_t bytes)
{
	const char *p = data;

	while (bytes > 0) {
		ssize_t n = write(fd, p, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		p += n;
		bytes -= (size_t)n;
	}
	return true;
}
