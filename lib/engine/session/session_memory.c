/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Regions and windows of a session.
 *
 * A region of another process is a window of addresses in this process (karst_space.h), under which
 * it is registered; its key is removed before its window.  A region of this process is registered
 * with its own addresses, whatever pieces the message has.
 *
 * lib/mem looks up a key by its upper 24 bits, so the tables here are indexed by these: a key of
 * another session, or a stale one, is either not found, or found and different.
 */
#include "session_priv.h"
#include "workers.h"
#include "space_priv.h"

#define WRITES (KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE_WRITE | KARST_ACCESS_REMOTE_ATOMIC)
#define KNOWN                                                                    \
	(KARST_ACCESS_LOCAL_WRITE | KARST_ACCESS_REMOTE | KARST_ACCESS_MW_BIND | \
		KARST_ACCESS_ZERO_BASED | KARST_ACCESS_HUGETLB | KARST_ACCESS_RELAXED_ORDERING)
#define REREG_KNOWN (KARST_REREG_TRANSLATION | KARST_REREG_PD | KARST_REREG_ACCESS)

static uint32_t
key_upper(uint32_t key)
{
	return key >> 8;
}

/* --- checks --- */

static int
mr_check_access(struct session_call *c, uint32_t access)
{
	/* R15: the engine does not know what memory is under a program's addresses, and could not
	 * make it persistent */
	if ((access & KARST_ACCESS_FLUSH_PERSISTENT) != 0)
		return reason(c, -EOPNOTSUPP,
			"access 0x%x: no memory is persistent to an engine (0x%x)", access,
			KARST_ACCESS_FLUSH_PERSISTENT);
	if ((access & ~(uint32_t)KNOWN) != 0)
		return reason(
			c, -EINVAL, "access 0x%x has unknown bits; known are 0x%x", access, KNOWN);
	if ((access & (KARST_ACCESS_REMOTE_WRITE | KARST_ACCESS_REMOTE_ATOMIC)) != 0 &&
		(access & KARST_ACCESS_LOCAL_WRITE) == 0)
		return reason(c, -EINVAL,
			"access 0x%x: remote write and remote atomic need local write (0x%x)",
			access, KARST_ACCESS_LOCAL_WRITE);
	return 0;
}

static int
mr_check_range(struct session_call *c, const char *what, uint64_t addr, uint64_t len)
{
	if (len != 0 && addr + (len - 1) < addr)
		return reason(c, -EINVAL, "%s 0x%llx, len %llu: wraps around 2^64", what,
			(unsigned long long)addr, (unsigned long long)len);
	return 0;
}

/* A translation: range in the program, and the addresses that requests use. */
struct range {
	uint64_t addr;
	uint64_t len;
	uint64_t iova;
	uint32_t npieces;
	const struct karst_ctl_piece *piece;
};

/* @had: bytes of the region that this one replaces. */
static int
check_translation(const struct karst_session *s, struct session_call *c, const struct range *r,
	uint32_t access, uint64_t had)
{
	uint64_t max = s->limits.max_mr_bytes, others = s->mr_bytes - had;
	int ret = mr_check_range(c, "addr", r->addr, r->len);

	if (ret == 0 && (access & KARST_ACCESS_ZERO_BASED) == 0)
		ret = mr_check_range(c, "iova", r->iova, r->len);
	if (ret == 0 && (r->len > max || others > max - r->len))
		ret = reason(c, -ENOMEM,
			"len %llu: this program has registered %llu of the %llu bytes that it may "
			"(max_mr_bytes)",
			(unsigned long long)r->len, (unsigned long long)others,
			(unsigned long long)max);
	return ret;
}

/* --- regions --- */

/* Result of mapping a translation. */
struct mapping {
	struct karst_space_region *region;
	void *host;
	uint64_t shared, migrated, copied;
	uint32_t maps;
};

/* Mappings of the engine that a region takes: its address range, and each piece that is mapped
 * there.  The kernel limits their number for a process. */
static uint32_t
maps_of(const struct range *r)
{
	uint32_t i, n = 1;

	for (i = 0; i < r->npieces; i++)
		n += r->piece[i].kind != KARST_CTL_PIECE_COPY;
	return n;
}

static int
map_range(const struct karst_session *s, struct session_call *c, const struct range *r, bool write,
	struct mapping *m)
{
	int ret;

	*m = (struct mapping){.host = (void *)(uintptr_t)r->addr, .shared = r->len};
	if (s->space == NULL && r->npieces > 0 && r->piece[0].flags & KARST_CTL_PIECE_ON_DEMAND)
		return reason(c, -EOPNOTSUPP,
			"memory on demand is not supported with an embedded engine: a hole in "
			"that memory would end the program");
	if (s->space == NULL)
		return 0;
	m->maps = maps_of(r);
	if (!eng_share_take(s->share, ENG_SHARE_MAPPINGS, m->maps))
		return eng_session_reason_share(s, c, ENG_SHARE_MAPPINGS);
	ret = karst_space_map(s->space, r->addr, r->len, write, r->piece, r->npieces, c->fds,
		c->nfds, &m->region, c->why);
	if (ret != 0) {
		eng_share_give(s->share, ENG_SHARE_MAPPINGS, m->maps);
		return ret;
	}
	m->host = karst_space_host(m->region);
	karst_space_bytes(m->region, &m->shared, &m->migrated, &m->copied);
	return 0;
}

static void
mr_unmap(const struct karst_session *s, struct karst_space_region *region, uint32_t maps)
{
	if (region == NULL)
		return;
	karst_space_unmap(region);
	eng_share_give(s->share, ENG_SHARE_MAPPINGS, maps);
}

/* Adds (@sign 1) or subtracts (-1) a region's bytes. */
static void
count_bytes(struct karst_session *s, const struct session_mr *mr, int sign)
{
	s->mr_bytes += (uint64_t)sign * mr->len;
	s->shared += (uint64_t)sign * mr->shared;
	s->migrated += (uint64_t)sign * mr->migrated;
	s->copied += (uint64_t)sign * mr->copied;
}

/* Stores the mapping @m in the region. */
static void
take_mapping(struct karst_session *s, struct session_mr *mr, const struct mapping *m,
	const struct range *r, bool write)
{
	mr->addr = r->addr;
	mr->len = r->len;
	mr->writable = write;
	mr->region = m->region;
	mr->maps = m->maps;
	mr->shared = m->shared;
	mr->migrated = m->migrated;
	mr->copied = m->copied;
	count_bytes(s, mr, 1);
}

static int
reg_mr(struct karst_session *s, struct session_call *c, const struct session_pd *pd,
	const struct range *r, uint32_t access, struct session_mr *mr)
{
	bool write = (access & WRITES) != 0;
	struct mapping m;
	int ret;

	ret = eng_session_key_reserve(c, &s->mrs, "memory regions", "max_mrs");
	if (ret == 0)
		ret = map_range(s, c, r, write, &m);
	if (ret != 0)
		return ret;
	ret = karst_engine_mr_reg(s->e, pd->pd, m.host, r->iova, r->len, access, &mr->key);
	if (ret != 0) {
		mr_unmap(s, m.region, m.maps);
		return reason(c, ret, "memory region: the engine has %u keys, and none is free",
			s->e->cfg.max_keys);
	}
	mr->access = access;
	take_mapping(s, mr, &m, r, write);
	eng_keys_add(&s->mrs, &mr->node, key_upper(mr->key));
	return 0;
}

int
eng_session_reg_mr(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_reg_mr_req *req = c->body;
	const struct session_pd *pd = eng_session_find(c, &s->pds, req->pd, "pd");
	const struct range r = {req->addr, req->len, req->iova, req->npieces, req->piece};
	struct karst_ctl_reg_mr_rsp *rsp = c->rsp;
	struct session_mr *mr;
	int ret;

	if (pd == NULL)
		return -EINVAL;
	ret = mr_check_access(c, req->access);
	if (ret == 0)
		ret = check_translation(s, c, &r, req->access, 0);
	if (ret != 0)
		return ret;
	mr = calloc(1, sizeof(*mr));
	if (mr == NULL)
		return reason(c, -ENOMEM, "memory region: the engine has no memory");
	ret = reg_mr(s, c, pd, &r, req->access, mr);
	if (ret != 0) {
		free(mr);
		return ret;
	}
	rsp->key = mr->key;
	rsp->shared_bytes = mr->shared;
	rsp->migrated_bytes = mr->migrated;
	rsp->copied_bytes = mr->copied;
	return 0;
}

static struct session_mr *
find_mr(const struct karst_session *s, struct session_call *c, uint32_t key)
{
	struct key_node *node = eng_keys_get(&s->mrs, key_upper(key));
	struct session_mr *mr =
		node == NULL ? NULL : karst_container_of(node, struct session_mr, node);

	if (mr == NULL || mr->key != key) {
		reason(c, -EINVAL, "key 0x%x: this program has no such region", key);
		return NULL;
	}
	return mr;
}

static void
free_mr(struct karst_session *s, struct session_mr *mr)
{
	mr_unmap(s, mr->region, mr->maps);
	count_bytes(s, mr, -1);
	eng_keys_del(&s->mrs, &mr->node);
	free(mr);
}

int
eng_session_dereg_mr(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_dereg_mr_req *req = c->body;
	struct session_mr *mr = find_mr(s, c, req->key);
	int ret;

	if (mr == NULL)
		return -EINVAL;
	ret = karst_engine_mr_dereg(s->e, mr->key);
	if (ret != 0)
		return reason(c, ret, "key 0x%x: windows are bound to the region", req->key);
	if (s->space != NULL)
		eng_copies_settle(s->space);
	free_mr(s, mr);
	return 0;
}

/* --- re-registration --- */

static int
check_rereg(const struct karst_session *s, struct session_call *c, const struct session_mr *mr,
	const struct karst_ctl_rereg_mr_req *req, uint32_t access)
{
	const struct range r = {req->addr, req->len, req->iova, req->npieces, req->piece};
	int ret;

	if (req->what == 0 || (req->what & ~(uint32_t)REREG_KNOWN) != 0)
		return reason(c, -EINVAL, "what 0x%x: must be some of the bits 0x%x", req->what,
			REREG_KNOWN);
	ret = mr_check_access(c, access);
	if (ret != 0 || (req->what & KARST_REREG_TRANSLATION) != 0)
		return ret != 0 ? ret : check_translation(s, c, &r, access, mr->len);
	if (req->npieces != 0 || c->nfds != 0)
		return reason(c, -EINVAL,
			"npieces %u, nfds %u: must be 0 without a new translation", req->npieces,
			c->nfds);
	if ((mr->access & ~access & KARST_ACCESS_ZERO_BASED) != 0)
		return reason(c, -EINVAL,
			"access 0x%x: the region is zero-based, which only a new translation can "
			"change",
			access);
	if ((access & WRITES) != 0 && !mr->writable)
		return reason(c, -EINVAL,
			"access 0x%x: the region was registered without write access, which only "
			"a new translation can give it",
			access);
	return 0;
}

/* Changes what the key refers to; if the mapping is replaced, frees the old one. */
static int
rereg_mr(struct karst_session *s, struct session_call *c, struct session_mr *mr,
	const struct karst_ctl_rereg_mr_req *req, const struct session_pd *pd, uint32_t access)
{
	const struct range r = {req->addr, req->len, req->iova, req->npieces, req->piece};
	bool moves = (req->what & KARST_REREG_TRANSLATION) != 0;
	struct karst_space_region *old = mr->region;
	uint32_t old_maps = mr->maps;
	struct karst_mr_attr attr = {.access = access, .va = r.iova, .len = r.len};
	struct mapping m = {0};
	int ret;

	if (moves) {
		ret = map_range(s, c, &r, (access & WRITES) != 0, &m);
		if (ret != 0)
			return ret;
		attr.host = m.host;
	}
	if (pd != NULL)
		attr.pd = pd->pd;
	ret = karst_engine_mr_rereg(s->e, mr->key, req->what, &attr);
	if (ret != 0) {
		mr_unmap(s, m.region, m.maps);
		return reason(c, ret,
			ret == -EBUSY ? "key 0x%x: windows are bound to the region"
				      : "key 0x%x: the region was invalidated",
			mr->key);
	}
	mr->access = access;
	if (moves) {
		if (s->space != NULL)
			eng_copies_settle(s->space);
		mr_unmap(s, old, old_maps);
		count_bytes(s, mr, -1);
		take_mapping(s, mr, &m, &r, (access & WRITES) != 0);
	}
	return 0;
}

/* Replaces the pieces of a region, with the same bytes: usually by pieces that do not have to be
 * copied any more. */
static int
move_mr(struct karst_session *s, struct session_call *c, struct session_mr *mr,
	const struct karst_ctl_rereg_mr_req *req)
{
	const struct range r = {mr->addr, mr->len, 0, req->npieces, req->piece};
	struct karst_space_region *old = mr->region;
	uint32_t old_maps = mr->maps;
	struct mapping m;
	int ret;

	if (s->space == NULL || req->what != KARST_CTL_REREG_PIECES || req->pd != 0 ||
		req->access != 0 || req->iova != 0 || req->addr != mr->addr || req->len != mr->len)
		return reason(c, -EINVAL,
			"what 0x%x, pd %u, access 0x%x, iova, addr and len: must leave key 0x%x "
			"as it is, which begins at 0x%llx and has %llu bytes; only its pieces "
			"can change",
			req->what, req->pd, req->access, mr->key, (unsigned long long)mr->addr,
			(unsigned long long)mr->len);
	ret = map_range(s, c, &r, mr->writable, &m);
	if (ret != 0)
		return ret;
	ret = karst_engine_mr_remap(s->e, mr->key, m.host);
	if (ret != 0) {
		mr_unmap(s, m.region, m.maps);
		return reason(c, ret,
			ret == -EBUSY ? "key 0x%x: the region has rights to bind windows or for "
					"atomics"
				      : "key 0x%x: the region was invalidated",
			mr->key);
	}
	/* Pending copies continue: they refer to the bytes by the program's addresses (copies.c),
	 * which stay, and not by the window that is freed here.  Waiting for them could last for
	 * ever: they may wait for page faults that are handled by the thread that waits for this
	 * reply. */
	mr_unmap(s, old, old_maps);
	count_bytes(s, mr, -1);
	take_mapping(s, mr, &m, &r, mr->writable);
	return 0;
}

static int
change_mr(struct karst_session *s, struct session_call *c, struct session_mr *mr,
	const struct karst_ctl_rereg_mr_req *req)
{
	const struct session_pd *pd = NULL;
	uint32_t access;
	int ret;

	access = (req->what & KARST_REREG_ACCESS) != 0 ? req->access : mr->access;
	ret = check_rereg(s, c, mr, req, access);
	if (ret != 0)
		return ret;
	if ((req->what & KARST_REREG_PD) != 0) {
		pd = eng_session_find(c, &s->pds, req->pd, "pd");
		if (pd == NULL)
			return -EINVAL;
	}
	return rereg_mr(s, c, mr, req, pd, access);
}

int
eng_session_rereg_mr(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_rereg_mr_req *req = c->body;
	struct karst_ctl_rereg_mr_rsp *rsp = c->rsp;
	struct session_mr *mr = find_mr(s, c, req->key);
	int ret;

	if (mr == NULL)
		return -EINVAL;
	ret = (req->what & KARST_CTL_REREG_PIECES) != 0 ? move_mr(s, c, mr, req)
							: change_mr(s, c, mr, req);
	if (ret != 0)
		return ret;
	rsp->key = mr->key;
	rsp->shared_bytes = mr->shared;
	rsp->migrated_bytes = mr->migrated;
	rsp->copied_bytes = mr->copied;
	return 0;
}

/* --- windows --- */

int
eng_session_alloc_mw(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_alloc_mw_req *req = c->body;
	const struct session_pd *pd = eng_session_find(c, &s->pds, req->pd, "pd");
	struct karst_ctl_alloc_mw_rsp *rsp = c->rsp;
	struct session_mw *mw;
	int ret;

	if (pd == NULL)
		return -EINVAL;
	if (req->type != 1 && req->type != 2)
		return reason(c, -EINVAL, "type %u: must be 1 or 2", req->type);
	ret = eng_session_key_reserve(c, &s->mws, "memory windows", "max_mws");
	if (ret != 0)
		return ret;
	mw = calloc(1, sizeof(*mw));
	if (mw == NULL)
		return reason(c, -ENOMEM, "memory window: the engine has no memory");
	ret = karst_engine_mw_alloc(
		s->e, pd->pd, req->type == 1 ? KARST_MEM_MW1 : KARST_MEM_MW2, &mw->key);
	if (ret != 0) {
		free(mw);
		return reason(c, ret, "memory window: the engine has %u keys, and none is free",
			s->e->cfg.max_keys);
	}
	eng_keys_add(&s->mws, &mw->node, key_upper(mw->key));
	rsp->key = mw->key;
	return 0;
}

static void
free_mw(struct karst_session *s, struct session_mw *mw)
{
	eng_keys_del(&s->mws, &mw->node);
	free(mw);
}

int
eng_session_free_mw(struct karst_session *s, struct session_call *c)
{
	const struct karst_ctl_free_mw_req *req = c->body;
	struct key_node *node = eng_keys_get(&s->mws, key_upper(req->key));
	struct session_mw *mw;
	int ret;

	if (node == NULL)
		return reason(c, -EINVAL, "key 0x%x: this program has no such window", req->key);
	mw = karst_container_of(node, struct session_mw, node);
	ret = karst_engine_mw_free(s->e, mw->key);
	if (ret != 0)
		return reason(c, ret, "key 0x%x: %s", req->key, strerror(-ret));
	free_mw(s, mw);
	return 0;
}

/* --- the end --- */

/* Before the queue pairs, each of which would search for the windows that it has bound. */
void
eng_session_drop_windows(struct karst_session *s)
{
	uint32_t key[DROP_BATCH], n, at = 0;
	struct key_node *node;

	for (; s->mws.used > 0; karst_engine_mw_free_many(s->e, key, n))
		for (n = 0; n < DROP_BATCH && (node = eng_keys_any(&s->mws, &at)) != NULL; n++) {
			struct session_mw *mw = karst_container_of(node, struct session_mw, node);

			key[n] = mw->key;
			free_mw(s, mw);
		}
}

void
eng_session_drop_memory(struct karst_session *s)
{
	struct session_mr *mr[DROP_BATCH];
	uint32_t key[DROP_BATCH], i, n, at = 0;
	struct key_node *node;

	while (s->mrs.used > 0) {
		for (n = 0; n < DROP_BATCH && (node = eng_keys_any(&s->mrs, &at)) != NULL; n++) {
			mr[n] = karst_container_of(node, struct session_mr, node);
			key[n] = mr[n]->key;
			eng_keys_del(&s->mrs, node);
		}
		karst_engine_mr_dereg_many(s->e, key, n);
		/* no lcore accesses their memory any more */
		for (i = 0; i < n; i++) {
			mr_unmap(s, mr[i]->region, mr[i]->maps);
			free(mr[i]);
		}
	}
}
