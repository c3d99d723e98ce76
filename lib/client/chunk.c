/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Ring memory: the engine's memory files.  The client maps each file completely before there is
 * anything in it, and keeps the mapping until the context is closed.  The engine seals a file when
 * the client confirms the mapping, so that no process can punch holes into the file or map it again
 * for writing.  The client checks places in replies against the size of the file, and the file is
 * sealed against shrinking, so no engine can make a program fault.
 *
 * Children do not inherit the mappings: they could only write into their parents' rings.
 */
#include "client_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* More than any engine has; prevents that a wrong number causes a large table. */
#define MAX_CHUNKS 65536u

/* Makes room in the table for @chunk, a number from the engine. */
static int
chunks_grow(struct karst_client *c, uint32_t chunk)
{
	struct cli_chunk *p;
	uint32_t n;

	if (chunk >= MAX_CHUNKS)
		return cli_fail(
			-EPROTO, "reply of the engine: memory file %u exceeds the limit", chunk);
	if (chunk < c->nchunks)
		return 0;
	n = chunk + 1;
	p = realloc(c->chunk, n * sizeof(*p));
	if (p == NULL)
		return cli_fail_const(-ENOMEM, "no memory");
	memset(p + c->nchunks, 0, (n - c->nchunks) * sizeof(*p));
	c->chunk = p;
	c->nchunks = n;
	return 0;
}

static int
map_file(struct cli_chunk *k, int fd, uint64_t bytes)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;
	void *at;

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return cli_fail_const(-EPROTO, "the engine's ring memory is not sealed");
	if (fstat(fd, &st) != 0 || bytes == 0 || (uint64_t)st.st_size < bytes)
		return cli_fail_const(
			-EPROTO, "the engine's ring memory is shorter than announced");
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return cli_fail(-errno, "mapping the engine's ring memory: %s", strerror(errno));
	madvise(at, bytes, MADV_DONTFORK);
	k->at = at;
	k->bytes = bytes;
	return 0;
}

static int
chunk_map(struct karst_client *c, uint32_t chunk, int fd, uint64_t bytes)
{
	int ret = chunks_grow(c, chunk);

	if (ret == 0 && c->chunk[chunk].at != NULL)
		ret = cli_fail(-EPROTO, "the engine's memory file %u is to be mapped again", chunk);
	return ret == 0 ? map_file(&c->chunk[chunk], fd, bytes) : ret;
}

static int
chunk_seal(struct karst_client *c, uint32_t chunk)
{
	CLI_REQ(seal_chunk) m = {.body.chunk = chunk};
	struct karst_ctl_seal_chunk_rsp rsp;
	struct cli_reply reply = {&rsp, sizeof(rsp), NULL, 0};

	return cli_call_locked(c, KARST_CTL_SEAL_CHUNK, &m.hdr, sizeof(m), NULL, 0, &reply);
}

int
cli_chunk_fetch_locked(struct karst_client *c)
{
	CLI_REQ(get_chunk) m = {.body.chunk = KARST_CTL_CHUNK_UNSEALED};
	struct karst_ctl_get_chunk_rsp rsp;
	int fd = -1, ret;
	struct cli_reply reply = {&rsp, sizeof(rsp), &fd, 1};

	ret = cli_call_locked(c, KARST_CTL_GET_CHUNK, &m.hdr, sizeof(m), NULL, 0, &reply);
	if (ret != 0)
		return ret;
	if (reply.nfds != 1)
		return cli_fail_const(-EPROTO, "the engine sent no descriptor of its ring memory");
	ret = chunk_map(c, rsp.chunk, fd, rsp.bytes);
	close(fd);
	return ret == 0 ? chunk_seal(c, rsp.chunk) : ret;
}

int
cli_place_locked(struct karst_client *c, const struct karst_ctl_place *place, uint64_t bytes,
	const char *what, void **at)
{
	const struct cli_chunk *k;

	if (place->chunk >= c->nchunks || c->chunk[place->chunk].at == NULL)
		return cli_fail(
			-EPROTO, "the engine put the %s into memory file %u", what, place->chunk);
	k = &c->chunk[place->chunk];
	if (place->len < bytes || place->len > k->bytes || place->off > k->bytes - place->len ||
		place->off % KARST_CACHE_LINE != 0)
		return cli_fail(-EPROTO, "the engine put the %s, %llu bytes, at %llu in %llu bytes",
			what, (unsigned long long)bytes, (unsigned long long)place->off,
			(unsigned long long)k->bytes);
	*at = (uint8_t *)k->at + place->off;
	return 0;
}

int
cli_place(struct karst_client *c, const struct karst_ctl_place *place, uint64_t bytes,
	const char *what, void **at)
{
	int ret;

	karst_mutex_lock(&c->ctl);
	ret = cli_place_locked(c, place, bytes, what, at);
	karst_mutex_unlock(&c->ctl);
	return ret;
}

void
cli_chunks_unmap(struct karst_client *c)
{
	uint32_t i;

	for (i = 0; i < c->nchunks; i++)
		if (c->chunk[i].at != NULL)
			munmap(c->chunk[i].at, c->chunk[i].bytes);
	free(c->chunk);
	c->chunk = NULL;
	c->nchunks = 0;
}
