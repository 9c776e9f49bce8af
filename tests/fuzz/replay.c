/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a fuzz target over kept inputs: every file of the folders that are named, or single files. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fuzz.h"

static unsigned run_folder(const char *path);
static unsigned run_file(const char *path);
static int is_visible(const struct dirent *e);

int main(int argc, char **argv)
{
	unsigned n = 0;

	for (int i = 1; i < argc; i++) {
		struct stat st;

		if (stat(argv[i], &st) < 0) {
			perror(argv[i]);
			return 1;
		}
		n += S_ISDIR(st.st_mode) ? run_folder(argv[i]) : run_file(argv[i]);
	}
	printf("%u inputs\n", n);
	return n ? 0 : 1;
}

/* In the order of their names: what one leaves behind, the next finds. */
static unsigned run_folder(const char *path)
{
	struct dirent **entries;
	int n = scandir(path, &entries, is_visible, alphasort);
	unsigned n_run = 0;
	char file[4096];

	for (int i = 0; i < n; i++) {
		snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name);
		n_run += run_file(file);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return n_run;
}

static int is_visible(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static unsigned run_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data;
	size_t bytes;
	long size;

	if (!f || fseek(f, 0, SEEK_END) < 0 || (size = ftell(f)) < 0) {
		perror(path);
		exit(1);
	}
	rewind(f);
	data = malloc((size_t)size + 1);
	bytes = fread(data, 1, (size_t)size, f);
	fclose(f);
	/* Told before it runs: after a crash the last line names the culprit. */
	fprintf(stderr, "%s\n", path);
	LLVMFuzzerTestOneInput(data, bytes);
	free(data);
	return 1;
}
