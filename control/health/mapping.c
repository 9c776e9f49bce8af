/* SPDX-License-Identifier: BSD-3-Clause */
/* Layout -> pairs -> preferred pairs -> best pairs. */
#include "health/mapping.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What a step of the build needs; it saves every function five arguments. */
struct build {
	struct rail_map *map;
	struct rail_map_plan *plan;
	const struct rail_map_layout *layout;
	const struct rail_map *old;
	struct rail_map_error *err;
	uint16_t n_used[PAIRS_MAX]; /* by remote: local rails that prefer it */
};

static int copy_rails(struct build *b);
static int copy_peer(struct build *b, const struct rail_map_peer *peer);
static int copy_end(struct build *b, struct rail_map_rail *to, const struct rail_map_end *from, const char *node);
static int make_pairs(struct build *b);
static int make_all(struct build *b);
static int mark_row(struct build *b, const struct rail_map_row *row);
static int number_pairs(struct build *b);
static void keep_number(struct build *b, uint16_t local, uint16_t remote);
static int free_number(struct build *b, uint16_t local, uint16_t remote, uint16_t *next);
static void make_groups(struct build *b);
static int prefer_explicit(struct build *b);
static int prefer_row(struct build *b, const struct rail_map_row *row);
static void prefer_automatic(struct build *b);
static bool is_by_name(const struct rail_map_rail *local, const struct rail_map_rail *remote);
static bool is_by_subnet(const struct rail_map_rail *local, const struct rail_map_rail *remote);
static bool is_by_numa(const struct rail_map_rail *local, const struct rail_map_rail *remote);
static bool is_any(const struct rail_map_rail *local, const struct rail_map_rail *remote);
static void choose_group(struct rail_map *map, uint16_t group);
static uint16_t choose(const struct rail_map *map, uint16_t group, uint8_t numa);
static uint16_t group_of(const struct rail_map_plan *p, uint16_t local_idx, uint16_t peer_idx);
static uint16_t belongs(const struct rail_map *map, uint16_t group, uint8_t numa);
static uint16_t choose_across(const struct rail_map *map, uint16_t group, uint8_t numa);
static uint16_t first_usable(const struct rail_map *map, uint16_t group, int numa);

/* A pair that the table allows but that has no number yet. */
#define WANTED 0xfffeu

typedef bool (*fits_fn)(const struct rail_map_rail *local, const struct rail_map_rail *remote);

__attribute__((format(printf, 3, 4))) static int fail(struct build *b, int error, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(b->err->text, sizeof(b->err->text), format, ap);
	va_end(ap);
	return error;
}

static uint8_t fold_numa(int numa)
{
	return numa < 0 || numa >= (int)RAIL_MAP_NUMA_MAX ? 0 : (uint8_t)numa;
}

static uint16_t find_local(const struct rail_map_plan *p, const char *name)
{
	for (uint16_t i = 0; i < p->n_locals; i++) {
		if (!strcmp(p->locals[i].name, name))
			return i;
	}
	return RAIL_MAP_NONE;
}

static uint16_t find_peer(const struct rail_map_plan *p, const char *name)
{
	for (uint16_t i = 0; i < p->n_peers; i++) {
		if (!strcmp(p->peers[i].name, name))
			return i;
	}
	return RAIL_MAP_NONE;
}

static uint16_t find_remote(const struct rail_map_plan *p, uint16_t peer, const char *name)
{
	uint16_t first = p->peers[peer].first_remote;

	for (uint16_t r = first; r < first + p->peers[peer].n_rails; r++) {
		if (!strcmp(p->remotes[r].name, name))
			return r;
	}
	return RAIL_MAP_NONE;
}

int rail_map_build(struct rail_map *map, const struct rail_map_layout *layout, const struct rail_map *old,
	struct rail_map_error *err)
{
	struct build b = {.map = map, .plan = &map->plan, .layout = layout, .old = old, .err = err};
	int rc;

	memset(map, 0, sizeof(*map));
	rc = copy_rails(&b);
	if (!rc)
		rc = make_pairs(&b);
	if (rc)
		return rc;
	make_groups(&b);
	rc = prefer_explicit(&b);
	if (rc)
		return rc;
	prefer_automatic(&b);
	for (uint16_t g = 0; g < b.plan->n_groups; g++)
		choose_group(map, g);
	return 0;
}

static int copy_rails(struct build *b)
{
	struct rail_map_plan *p = b->plan;
	int rc = 0;

	if (b->layout->n_locals > RY_RAILS_MAX)
		return fail(b, -ENOSPC, "rails: %u are more than the %u of a node: remove some", b->layout->n_locals,
			RY_RAILS_MAX);
	for (uint32_t i = 0; i < b->layout->n_locals && !rc; i++) {
		if (find_local(p, b->layout->locals[i].name) != RAIL_MAP_NONE)
			return fail(
				b, -EINVAL, "rail %s: two rails have this name: rename one", b->layout->locals[i].name);
		rc = copy_end(b, &p->locals[i], &b->layout->locals[i], "this node");
		p->n_locals++;
	}
	if (!rc && b->layout->n_peers > RAIL_MAP_PEERS_MAX)
		return fail(b, -ENOSPC, "peers: %u are more than the most of %u: remove some", b->layout->n_peers,
			RAIL_MAP_PEERS_MAX);
	for (uint32_t i = 0; i < b->layout->n_peers && !rc; i++)
		rc = copy_peer(b, &b->layout->peers[i]);
	return rc;
}

static int copy_peer(struct build *b, const struct rail_map_peer *peer)
{
	struct rail_map_plan *p = b->plan;
	uint16_t idx = p->n_peers;
	int rc = 0;

	if (strlen(peer->name) >= RY_NAME_MAX_BYTES)
		return fail(b, -EINVAL, "peer %s: its name is longer than %u bytes", peer->name, RY_NAME_MAX_BYTES - 1);
	if (find_peer(p, peer->name) != RAIL_MAP_NONE)
		return fail(b, -EINVAL, "peer %s: two peers have this name: rename one", peer->name);
	if (peer->n_rails > PAIRS_MAX - p->n_remotes)
		return fail(b, -ENOSPC, "peer %s: the rails of all peers are more than %u: remove some", peer->name,
			PAIRS_MAX);
	memcpy(p->peers[idx].name, peer->name, strlen(peer->name) + 1);
	p->peers[idx].first_remote = p->n_remotes;
	p->n_peers++;
	for (uint32_t r = 0; r < peer->n_rails && !rc; r++) {
		if (find_remote(p, idx, peer->rails[r].name) != RAIL_MAP_NONE)
			return fail(b, -EINVAL, "peer %s: rail %s: two rails have this name: rename one", peer->name,
				peer->rails[r].name);
		rc = copy_end(b, &p->remotes[p->n_remotes], &peer->rails[r], peer->name);
		p->remotes[p->n_remotes++].peer_idx = idx;
		p->peers[idx].n_rails++;
	}
	return rc;
}

static int copy_end(struct build *b, struct rail_map_rail *to, const struct rail_map_end *from, const char *node)
{
	if (strlen(from->name) >= sizeof(to->name))
		return fail(b, -EINVAL, "%s: rail %s: its name is longer than %zu bytes", node, from->name,
			sizeof(to->name) - 1);
	if (from->prefix_bits > 128)
		return fail(b, -EINVAL, "%s: rail %s: a prefix of %u bits is longer than an address", node, from->name,
			from->prefix_bits);
	memcpy(to->name, from->name, strlen(from->name) + 1);
	memcpy(to->address, from->address, sizeof(to->address));
	to->prefix_bits = from->prefix_bits;
	to->numa = fold_numa(from->numa);
	return 0;
}

/* Which pairs exist, then their numbers. */
static int make_pairs(struct build *b)
{
	int rc;

	memset(b->plan->pair_of, 0xff, sizeof(b->plan->pair_of));
	rc = make_all(b);
	return rc ? rc : number_pairs(b);
}

static int make_all(struct build *b)
{
	const struct rail_map_table *t = b->layout->table;
	struct rail_map_plan *p = b->plan;
	int rc = 0;

	for (uint32_t i = 0; t && i < t->n_all && !rc; i++)
		rc = mark_row(b, &t->all[i]);
	if (t && t->n_all)
		return rc;
	for (uint16_t l = 0; l < p->n_locals; l++) {
		for (uint16_t r = 0; r < p->n_remotes; r++)
			p->pair_of[l][r] = WANTED;
	}
	return 0;
}

/* Names of one row -> indices. From *peer on: the next peer that has such a rail; one row may stand for several. */
static int resolve(struct build *b, const struct rail_map_row *row, uint16_t *local, uint16_t *peer, uint16_t *remote)
{
	const struct rail_map_plan *p = b->plan;

	*local = find_local(p, row->local);
	if (*local == RAIL_MAP_NONE)
		return fail(b, -EINVAL, "rail table: no local rail %s: name one of the rails list", row->local);
	for (; *peer < p->n_peers; ++*peer) {
		if (row->peer && strcmp(row->peer, p->peers[*peer].name))
			continue;
		*remote = find_remote(p, *peer, row->remote);
		if (*remote != RAIL_MAP_NONE)
			return 0;
	}
	return -ENOENT;
}

static int no_remote(struct build *b, const struct rail_map_row *row)
{
	if (row->peer && find_peer(b->plan, row->peer) == RAIL_MAP_NONE)
		return fail(b, -EINVAL, "rail table: no peer %s: name one of the stores list", row->peer);
	return fail(b, -EINVAL, "rail table: %s has no rail %s: name one that it has",
		row->peer ? row->peer : "no peer", row->remote);
}

static int mark_row(struct build *b, const struct rail_map_row *row)
{
	uint16_t local, remote, peer = 0;
	int rc = resolve(b, row, &local, &peer, &remote);

	if (rc == -ENOENT)
		return no_remote(b, row);
	while (!rc) {
		b->plan->pair_of[local][remote] = WANTED;
		peer++;
		rc = resolve(b, row, &local, &peer, &remote);
	}
	return rc == -ENOENT ? 0 : rc;
}

/* Old pairs first, so that a new one never takes a number that an old one keeps. */
static int number_pairs(struct build *b)
{
	struct rail_map_plan *p = b->plan;
	uint16_t next = 0;
	int rc = 0;

	for (uint16_t l = 0; b->old && l < p->n_locals; l++) {
		for (uint16_t r = 0; r < p->n_remotes; r++)
			keep_number(b, l, r);
	}
	for (uint16_t l = 0; l < p->n_locals; l++) {
		for (uint16_t r = 0; r < p->n_remotes && !rc; r++)
			rc = free_number(b, l, r, &next);
	}
	return rc;
}

static void give_number(struct rail_map_plan *p, uint16_t local, uint16_t remote, uint16_t pair)
{
	p->pair_of[local][remote] = pair;
	p->pairs[pair].exists = true;
	p->pairs[pair].local_idx = local;
	p->pairs[pair].remote_idx = remote;
	p->n_pairs++;
}

static void keep_number(struct build *b, uint16_t local, uint16_t remote)
{
	struct rail_map_plan *p = b->plan;
	uint16_t pair;

	if (p->pair_of[local][remote] != WANTED)
		return;
	pair = rail_map_find(
		b->old, p->locals[local].name, p->peers[p->remotes[remote].peer_idx].name, p->remotes[remote].name);
	if (pair == RAIL_MAP_NONE)
		return;
	give_number(p, local, remote, pair);
	b->map->is_paused[pair] = b->old->is_paused[pair];
}

static int free_number(struct build *b, uint16_t local, uint16_t remote, uint16_t *next)
{
	if (b->plan->pair_of[local][remote] != WANTED)
		return 0;
	while (*next < PAIRS_MAX && b->plan->pairs[*next].exists)
		++*next;
	if (*next == PAIRS_MAX)
		return fail(b, -ENOSPC,
			"rails: more than %u pairs of a local and a remote rail: list the wanted ones in the rail "
			"table",
			PAIRS_MAX);
	give_number(b->plan, local, remote, *next);
	return 0;
}

static void make_groups(struct build *b)
{
	struct rail_map_plan *p = b->plan;

	memset(p->group_of, 0xff, sizeof(p->group_of));
	for (uint16_t l = 0; l < p->n_locals; l++) {
		for (uint16_t r = 0; r < p->n_remotes; r++) {
			uint16_t *g = &p->group_of[l][p->remotes[r].peer_idx];

			if (p->pair_of[l][r] == RAIL_MAP_NONE || *g != RAIL_MAP_NONE)
				continue;
			*g = p->n_groups++;
			p->groups[*g].local_idx = l;
			p->groups[*g].peer_idx = p->remotes[r].peer_idx;
			p->groups[*g].preferred = RAIL_MAP_NONE;
		}
	}
}

static int prefer_explicit(struct build *b)
{
	const struct rail_map_table *t = b->layout->table;
	int rc = 0;

	for (uint32_t i = 0; t && i < t->n_direct && !rc; i++)
		rc = prefer_row(b, &t->direct[i]);
	return rc;
}

static void prefer(struct build *b, uint16_t group, uint16_t pair)
{
	b->plan->groups[group].preferred = pair;
	b->n_used[b->plan->pairs[pair].remote_idx]++;
}

static int prefer_row(struct build *b, const struct rail_map_row *row)
{
	struct rail_map_plan *p = b->plan;
	uint16_t local, remote, group, peer = 0;
	int rc = resolve(b, row, &local, &peer, &remote);

	if (rc == -ENOENT)
		return no_remote(b, row);
	while (!rc) {
		if (p->pair_of[local][remote] == RAIL_MAP_NONE)
			return fail(b, -EINVAL,
				"rail table: direct %s to %s of %s is not in the list of all pairs: add it there",
				row->local, row->remote, p->peers[peer].name);
		group = p->group_of[local][peer];
		if (p->groups[group].preferred != RAIL_MAP_NONE)
			return fail(b, -EINVAL, "rail table: %s has two direct rails to %s: keep one", row->local,
				p->peers[peer].name);
		p->groups[group].is_explicit = true;
		prefer(b, group, p->pair_of[local][remote]);
		peer++;
		rc = resolve(b, row, &local, &peer, &remote);
	}
	return rc == -ENOENT ? 0 : rc;
}

/* The least used remote rail of a group that fits, or RAIL_MAP_NONE. */
static uint16_t least_used(const struct build *b, uint16_t group, fits_fn fits)
{
	const struct rail_map_plan *p = b->plan;
	uint16_t local = p->groups[group].local_idx, peer = p->groups[group].peer_idx;
	uint16_t first = p->peers[peer].first_remote, found = RAIL_MAP_NONE;
	uint32_t least = UINT32_MAX;

	for (uint16_t r = first; r < first + p->peers[peer].n_rails; r++) {
		if (p->pair_of[local][r] == RAIL_MAP_NONE || b->n_used[r] >= least)
			continue;
		if (!fits(&p->locals[local], &p->remotes[r]))
			continue;
		found = p->pair_of[local][r];
		least = b->n_used[r];
	}
	return found;
}

/* Rule by rule, not rail by rail: a rail without a namesake must not be given one that another rail is about to claim.
 */
static void prefer_automatic(struct build *b)
{
	static const fits_fn rules[] = {is_by_name, is_by_subnet, is_by_numa, is_any};

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		for (uint16_t g = 0; g < b->plan->n_groups; g++) {
			uint16_t pair;

			if (b->plan->groups[g].preferred != RAIL_MAP_NONE)
				continue;
			pair = least_used(b, g, rules[i]);
			if (pair != RAIL_MAP_NONE)
				prefer(b, g, pair);
		}
	}
}

static bool is_by_name(const struct rail_map_rail *local, const struct rail_map_rail *remote)
{
	return !strcmp(local->name, remote->name);
}

/* The local prefix decides; a peer does not tell its own. */
static bool is_by_subnet(const struct rail_map_rail *local, const struct rail_map_rail *remote)
{
	uint8_t bytes = local->prefix_bits / 8, bits = local->prefix_bits % 8;

	if (!local->prefix_bits || !remote->prefix_bits)
		return false;
	if (memcmp(local->address, remote->address, bytes))
		return false;
	return !bits || !((local->address[bytes] ^ remote->address[bytes]) >> (8 - bits));
}

static bool is_by_numa(const struct rail_map_rail *local, const struct rail_map_rail *remote)
{
	return local->numa == remote->numa;
}

static bool is_any(const struct rail_map_rail *local, const struct rail_map_rail *remote)
{
	return true;
}

static void choose_group(struct rail_map *map, uint16_t group)
{
	for (uint8_t numa = 0; numa < RAIL_MAP_NUMA_MAX; numa++)
		map->best[group][numa] = choose(map, group, numa);
}

/* The tiers: the pair that belongs there, else a usable one on the node, else any usable one, else the first choice (it
 * will be probed). */
static uint16_t choose(const struct rail_map *map, uint16_t group, uint8_t numa)
{
	uint16_t chosen = belongs(map, group, numa), other;

	if (!map->is_paused[chosen])
		return chosen;
	other = first_usable(map, group, numa);
	if (other == RAIL_MAP_NONE)
		other = first_usable(map, group, -1);
	return other == RAIL_MAP_NONE ? chosen : other;
}

static uint16_t belongs(const struct rail_map *map, uint16_t group, uint8_t numa)
{
	const struct rail_map_plan *p = &map->plan;

	return p->locals[p->groups[group].local_idx].numa == numa ? p->groups[group].preferred
								  : choose_across(map, group, numa);
}

/* Another node's rail: the one the table names, a namesake, else by position; the preferred one where that node has
 * none. */
static uint16_t choose_across(const struct rail_map *map, uint16_t group, uint8_t numa)
{
	const struct rail_map_plan *p = &map->plan;
	uint16_t local = p->groups[group].local_idx, preferred = p->groups[group].preferred;
	uint16_t peer = p->groups[group].peer_idx, first = p->peers[peer].first_remote;
	uint16_t on_node[PAIRS_MAX], n = 0, position = 0;

	if (p->groups[group].is_explicit && p->remotes[p->pairs[preferred].remote_idx].numa == numa)
		return preferred;
	for (uint16_t r = first; r < first + p->peers[peer].n_rails; r++) {
		if (p->pair_of[local][r] == RAIL_MAP_NONE || p->remotes[r].numa != numa)
			continue;
		if (is_by_name(&p->locals[local], &p->remotes[r]))
			return p->pair_of[local][r];
		on_node[n++] = p->pair_of[local][r];
	}
	for (uint16_t l = 0; l < local; l++)
		position += p->locals[l].numa == p->locals[local].numa;
	return n ? on_node[position % n] : preferred;
}

/* numa -1 = any node. */
static uint16_t first_usable(const struct rail_map *map, uint16_t group, int numa)
{
	const struct rail_map_plan *p = &map->plan;
	uint16_t local = p->groups[group].local_idx, peer = p->groups[group].peer_idx;
	uint16_t first = p->peers[peer].first_remote;

	for (uint16_t r = first; r < first + p->peers[peer].n_rails; r++) {
		uint16_t pair = p->pair_of[local][r];

		if (pair == RAIL_MAP_NONE || map->is_paused[pair])
			continue;
		if (numa < 0 || p->remotes[r].numa == numa)
			return pair;
	}
	return RAIL_MAP_NONE;
}

bool rail_map_is_equal(const struct rail_map *a, const struct rail_map *b)
{
	return !memcmp(&a->plan, &b->plan, sizeof(a->plan));
}

bool rail_map_is_same_pair(const struct rail_map *a, const struct rail_map *b, uint16_t pair_idx)
{
	const struct rail_map_rail *ra, *rb;

	if (!rail_map_has_pair(a, pair_idx) || !rail_map_has_pair(b, pair_idx))
		return false;
	ra = &a->plan.remotes[a->plan.pairs[pair_idx].remote_idx];
	rb = &b->plan.remotes[b->plan.pairs[pair_idx].remote_idx];
	return !strcmp(ra->name, rb->name) &&
	       !strcmp(a->plan.peers[ra->peer_idx].name, b->plan.peers[rb->peer_idx].name) &&
	       !strcmp(a->plan.locals[a->plan.pairs[pair_idx].local_idx].name,
		       b->plan.locals[b->plan.pairs[pair_idx].local_idx].name);
}

uint16_t rail_map_pair(const struct rail_map *map, uint16_t local_idx, uint16_t peer_idx, uint16_t remote_idx)
{
	const struct rail_map_plan *p = &map->plan;

	if (local_idx >= p->n_locals || peer_idx >= p->n_peers || remote_idx >= p->peers[peer_idx].n_rails)
		return RAIL_MAP_NONE;
	return p->pair_of[local_idx][p->peers[peer_idx].first_remote + remote_idx];
}

uint16_t rail_map_find(const struct rail_map *map, const char *local, const char *peer, const char *remote)
{
	uint16_t l = find_local(&map->plan, local), p = find_peer(&map->plan, peer), r;

	if (l == RAIL_MAP_NONE || p == RAIL_MAP_NONE)
		return RAIL_MAP_NONE;
	r = find_remote(&map->plan, p, remote);
	return r == RAIL_MAP_NONE ? RAIL_MAP_NONE : map->plan.pair_of[l][r];
}

void rail_map_set_paused(struct rail_map *map, uint16_t pair_idx, bool is_paused)
{
	const struct rail_map_plan *p = &map->plan;
	uint16_t local = p->pairs[pair_idx].local_idx;
	uint16_t peer = p->remotes[p->pairs[pair_idx].remote_idx].peer_idx;

	map->is_paused[pair_idx] = is_paused;
	choose_group(map, p->group_of[local][peer]);
}

uint16_t rail_map_best(const struct rail_map *map, uint16_t local_idx, uint16_t peer_idx, int remote_numa)
{
	uint16_t group = group_of(&map->plan, local_idx, peer_idx);

	return group == RAIL_MAP_NONE ? RAIL_MAP_NONE : map->best[group][fold_numa(remote_numa)];
}

uint16_t rail_map_preferred(const struct rail_map *map, uint16_t local_idx, uint16_t peer_idx, int remote_numa)
{
	uint16_t group = group_of(&map->plan, local_idx, peer_idx);

	return group == RAIL_MAP_NONE ? RAIL_MAP_NONE : belongs(map, group, fold_numa(remote_numa));
}

static uint16_t group_of(const struct rail_map_plan *p, uint16_t local_idx, uint16_t peer_idx)
{
	return local_idx < p->n_locals && peer_idx < p->n_peers ? p->group_of[local_idx][peer_idx] : RAIL_MAP_NONE;
}
