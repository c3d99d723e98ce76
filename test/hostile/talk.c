/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Programs send nonsense to the socket: well-formed requests about handles, keys, sizes and
 * addresses that may or may not be theirs; the same with a byte changed, truncated, extended, or
 * sent before HELLO; bytes that are no message; descriptors of every kind where none belong.  Some
 * close the connection halfway, some never read an answer.
 *
 * What they register is their own memory, so nothing that the engine does to it harms others.
 */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "karst_ctl_msg.h"
#include "karst_ctl_sock.h"

#define CHUNKS    4u /* of ring memory, that a program has at first, at most */
#define TALKERS   3
#define REQUESTS  60000
#define WARM      12000
#define REMEMBER  32
#define MEM_BYTES (1u << 18)
#define FDS       8

struct talker {
	struct report *r;
	struct dice dice;
	const struct host *host;
	int sock;
	uint32_t seq;
	uint32_t known[REMEMBER]; /* words of answers: handles and keys */
	uint32_t nknown;
	int fd[FDS];
	uint8_t *mem, *file;
	uint8_t *msg, *answer;
};

/* --- numbers --- */

static uint32_t
word(struct talker *t)
{
	switch (dice_below(&t->dice, 10)) {
	case 0:
		return UINT32_MAX;
	case 1:
		return 1u << dice_below(&t->dice, 32);
	case 2:
		return (uint32_t)dice_roll(&t->dice);
	case 3:
	case 4:
	case 5:
	case 6:
		if (t->nknown > 0)
			return t->known[dice_below(&t->dice, karst_min_u32(t->nknown, REMEMBER))];
		/* fallthrough */
	default:
		return dice_below(&t->dice, 6);
	}
}

static uint64_t
address(struct talker *t)
{
	uintptr_t at = (uintptr_t)(dice_below(&t->dice, 2) ? t->mem : t->file);

	switch (dice_below(&t->dice, 8)) {
	case 0:
		return dice_roll(&t->dice);
	case 1:
		return UINT64_MAX - dice_below(&t->dice, 8192);
	case 2:
		return 0;
	default:
		return at + 4096ull * dice_below(&t->dice, MEM_BYTES / 4096) +
			(dice_below(&t->dice, 3) == 0 ? dice_below(&t->dice, 4096) : 0);
	}
}

/* --- requests --- */

static uint32_t
put_pieces(struct talker *t, struct karst_ctl_piece *p, uint64_t addr, uint64_t len)
{
	uint32_t i, n = 1 + dice_below(&t->dice, 4);

	for (i = 0; i < n; i++) {
		uint64_t part = i + 1 == n ? len : len / n & ~4095ull;

		p[i] = (struct karst_ctl_piece){
			.addr = addr,
			.len = part,
			.kind = dice_below(&t->dice, 3),
			.fd = (int32_t)dice_below(&t->dice, 3),
			.flags = dice_below(&t->dice, 4),
		};
		if (p[i].kind == KARST_CTL_PIECE_VMA) {
			p[i].vma_start = (uintptr_t)t->file;
			p[i].vma_end = (uintptr_t)t->file + MEM_BYTES;
			p[i].file_off = addr - (uintptr_t)t->file;
		} else if (p[i].kind == KARST_CTL_PIECE_FD) {
			p[i].file_off = 4096ull * dice_below(&t->dice, 128);
		} else {
			p[i].fd = 0;
		}
		addr += part;
		len -= part;
	}
	return n;
}

static size_t
put_mr(struct talker *t, struct karst_ctl_reg_mr_req *b)
{
	b->pd = word(t);
	b->access = dice_below(&t->dice, 64);
	b->addr = address(t);
	b->len =
		dice_below(&t->dice, 4) ? 1 + dice_below(&t->dice, MEM_BYTES) : dice_roll(&t->dice);
	b->iova = dice_below(&t->dice, 2) ? b->addr : dice_roll(&t->dice);
	b->npieces = put_pieces(t, b->piece, b->addr, b->len);
	return sizeof(*b) + b->npieces * sizeof(b->piece[0]);
}

/* A group, usually one of few. */
static void
put_mcast(struct talker *t, struct karst_ctl_attach_mcast_req *b)
{
	b->qp = word(t);
	b->gid[10] = b->gid[11] = 0xff;
	b->gid[12] = dice_below(&t->dice, 8) ? 239 : (uint8_t)dice_roll(&t->dice);
	b->gid[15] = (uint8_t)dice_below(&t->dice, 4);
}

static void
put_hello(struct talker *t, struct karst_ctl_hello_req *b)
{
	snprintf(b->program, sizeof(b->program), "talker");
	b->abi = dice_below(&t->dice, 16) ? KARST_RING_ABI : word(t);
	b->port = dice_below(&t->dice, 2) ? 0 : word(t);
}

/* Builds a request that is valid, or might be.  @return its bytes. */
static size_t
put_request(struct talker *t, uint16_t op)
{
	const struct karst_ctl_op_info *info = karst_ctl_op_info(op);
	struct karst_ctl_hdr *h = (struct karst_ctl_hdr *)t->msg;
	uint32_t *body = (uint32_t *)(h + 1);
	size_t i, len = info != NULL ? info->req_bytes : 8 * dice_below(&t->dice, 64);

	memset(t->msg, 0, KARST_CTL_MAX);
	if (op == KARST_CTL_HELLO)
		put_hello(t, (void *)body);
	else if (op == KARST_CTL_REG_MR)
		len = put_mr(t, (void *)body);
	else if (op == KARST_CTL_ATTACH_MCAST || op == KARST_CTL_DETACH_MCAST)
		put_mcast(t, (void *)body);
	else
		for (i = 0; i < len / 4; i++)
			body[i] = dice_below(&t->dice, 3) ? word(t) : 0;
	len += sizeof(*h);
	*h = (struct karst_ctl_hdr){
		.magic = KARST_CTL_MAGIC,
		.version = KARST_CTL_VERSION,
		.op = op,
		.len = (uint32_t)len,
		.seq = ++t->seq,
	};
	return len;
}

/* Without this nearly everything is refused; some of these chunks may not exist. */
static size_t
put_seal(struct talker *t, uint32_t chunk)
{
	size_t len = put_request(t, KARST_CTL_SEAL_CHUNK);
	struct karst_ctl_hdr *h = (struct karst_ctl_hdr *)t->msg;

	*(struct karst_ctl_seal_chunk_req *)(h + 1) =
		(struct karst_ctl_seal_chunk_req){.chunk = chunk};
	return len;
}

static uint16_t
any_op(struct talker *t)
{
	static const uint16_t ops[] = {
#define X(NAME, name, value) value,
		KARST_CTL_OPS(X)
#undef X
	};

	if (dice_below(&t->dice, 32) == 0)
		return (uint16_t)dice_roll(&t->dice);
	/* without these nothing else gets far */
	if (dice_below(&t->dice, 4) == 0)
		return dice_below(&t->dice, 2) ? KARST_CTL_ALLOC_PD : KARST_CTL_CREATE_CQ;
	return ops[dice_below(&t->dice, KARST_DIM(ops))];
}

/* --- the answers --- */

static size_t
mutate(struct talker *t, size_t len)
{
	struct karst_ctl_hdr *h = (struct karst_ctl_hdr *)t->msg;
	uint32_t i, n = 1 + dice_below(&t->dice, 4);

	for (i = 0; i < n && len > 0; i++) {
		uint32_t at = dice_below(&t->dice, (uint32_t)len);

		switch (dice_below(&t->dice, 5)) {
		case 0:
			t->msg[at] ^= (uint8_t)(1u << dice_below(&t->dice, 8));
			break;
		case 1:
			t->msg[at] = (uint8_t)dice_roll(&t->dice);
			break;
		case 2:
			len = at;
			break;
		case 3:
			len = karst_min_u64(KARST_CTL_MAX, len + dice_below(&t->dice, 4096));
			break;
		default: {
			uint32_t w = word(t);

			memcpy(t->msg + (at & ~3u), &w, 4);
		}
		}
	}
	/* half of the messages at least have the right length field */
	if (dice_below(&t->dice, 2) && len >= sizeof(*h))
		h->len = (uint32_t)len;
	return len;
}

/* A file of any size, sealed or not, which this process may or may not write to. */
static int
any_fd(struct talker *t)
{
	int pipes[2], fd;

	switch (dice_below(&t->dice, 9)) {
	case 0:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 1:
		return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case 2:
		return open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	case 3:
		return eventfd(0, EFD_CLOEXEC);
	case 4:
		return epoll_create1(EPOLL_CLOEXEC);
	case 5:
		if (pipe2(pipes, O_CLOEXEC) != 0)
			return -1;
		close(pipes[0]);
		return pipes[1];
	case 6:
		return dup(t->sock);
	default:
		fd = memfd_create("talker", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (fd >= 0 && ftruncate(fd, 4096 * (long)dice_below(&t->dice, 128)) == 0 &&
			dice_below(&t->dice, 2))
			fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
		return fd;
	}
}

static void
remember(struct talker *t, const uint32_t *w, size_t n)
{
	size_t i;

	for (i = 0; i < n && i < 3; i++)
		if (w[i] != 0)
			t->known[t->nknown++ % REMEMBER] = w[i];
}

/* @return false: the engine has closed the connection. */
static bool
hear(struct talker *t)
{
	struct karst_ctl_hdr *h = (struct karst_ctl_hdr *)t->answer;
	int fds[KARST_CTL_MAX_FDS];
	unsigned int nfds = 0;
	size_t len;
	int ret = karst_ctl_recv(t->sock, t->answer, &len, fds, &nfds);

	if (ret == -EAGAIN)
		child_fail(t->r, "request %u of operation %u: no answer within %d s", t->seq,
			((struct karst_ctl_hdr *)t->msg)->op, HANG_S);
	if (ret != 0)
		return false;
	karst_ctl_close_fds(fds, nfds);
	if (len < sizeof(*h) || h->magic != KARST_CTL_MAGIC || h->len != len || h->status > 0)
		child_fail(t->r, "an answer of %zu bytes that makes no sense", len);
	if (h->status == 0)
		remember(t, (const uint32_t *)(h + 1), (len - sizeof(*h)) / 4);
	else if (memchr(h + 1, '\0', len - sizeof(*h)) == NULL ||
		((const char *)(h + 1))[0] == '\0')
		child_fail(t->r, "a refusal (%d) without a word", h->status);
	atomic_fetch_add(&t->r->ops, 1);
	return true;
}

static bool
say(struct talker *t, size_t len, unsigned int nfds)
{
	int fds[FDS];
	unsigned int i, n = 0;
	int ret;

	for (i = 0; i < nfds; i++) {
		fds[n] = any_fd(t);
		n += fds[n] >= 0;
	}
	if (len >= sizeof(struct karst_ctl_hdr) && dice_below(&t->dice, 8))
		((struct karst_ctl_hdr *)t->msg)->nfds = n;
	ret = karst_ctl_send(t->sock, t->msg, len, fds, n);
	karst_ctl_close_fds(fds, n);
	return ret == 0;
}

/* --- one connection --- */

static void
connect_to(struct talker *t)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	const struct timeval patience = {.tv_sec = HANG_S};

	t->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", t->host->sock);
	setsockopt(t->sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(t->sock, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(t->sock, (struct sockaddr *)&a, sizeof(a)) != 0)
		child_fail(t->r, "connecting: %s", strerror(errno));
}

static void
one_connection(struct talker *t)
{
	uint32_t left = 1 + dice_below(&t->dice, 400), deaf = dice_below(&t->dice, 16) == 0;
	bool greet = dice_below(&t->dice, 16) != 0;
	uint32_t seal = greet && dice_below(&t->dice, 16) != 0 ? CHUNKS : 0;

	connect_to(t);
	t->nknown = 0;
	while (left-- > 0 && !atomic_load(&t->r->stop)) {
		size_t len = !greet && seal > 0
			? put_seal(t, --seal)
			: put_request(t, greet ? KARST_CTL_HELLO : any_op(t));
		unsigned int nfds = dice_below(&t->dice, 4) == 0 ? dice_below(&t->dice, FDS) : 0;

		if (!greet && dice_below(&t->dice, 3) == 0)
			len = mutate(t, len);
		/* an empty packet is received like an end of the connection */
		if (len == 0 || !say(t, len, greet ? 0 : nfds))
			break;
		greet = false;
		if (!deaf && !hear(t))
			break;
		/* closes while the engine handles it */
		if (deaf && dice_below(&t->dice, 8) == 0)
			break;
	}
	close(t->sock);
}

void
attack_talk(struct report *r, void *arg)
{
	const struct attack_start *s = arg;
	static struct talker t;
	int fd = memfd_create("talker", MFD_CLOEXEC);

	t.r = r;
	t.dice.state = s->seed;
	t.host = s->host;
	t.msg = malloc(KARST_CTL_MAX);
	t.answer = malloc(KARST_CTL_MAX);
	t.mem = mmap(NULL, MEM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fd < 0 || ftruncate(fd, MEM_BYTES) != 0)
		child_fail(r, "memory file: %s", strerror(errno));
	t.file = mmap(NULL, MEM_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	atomic_store(&r->ready, true);
	while (!atomic_load(&r->stop))
		one_connection(&t);
}

/* --- the case --- */

static uint64_t
answered(const struct child *c)
{
	uint64_t n = 0;
	int i;

	for (i = 0; i < TALKERS; i++)
		n += atomic_load(&c[i].report->ops);
	return n;
}

/* Runs for @seconds, or, if that is 0, until @requests were answered. */
static bool
talk(const struct host *h, struct dice *d, uint32_t seconds, uint64_t requests,
	struct innocents *in, uint64_t *said)
{
	struct child c[TALKERS];
	uint64_t now = now_ms(), until = now + 1000ull * seconds, heard = 0, since = now;
	bool good = true;
	int i;

	for (i = 0; i < TALKERS; i++) {
		struct attack_start s = {h, dice_roll(d)};

		if (!child_start(&c[i], attack_talk, &s))
			return false;
	}
	for (; good && (seconds != 0 ? now < until : heard < requests); now = now_ms()) {
		sleep_ms(20);
		good = (in == NULL || innocents_go_on(in)) && host_alive(h);
		for (i = 0; i < TALKERS; i++)
			good &= child_alive(&c[i]);
		if (answered(c) != heard)
			since = now;
		heard = answered(c);
		if (now - since > HANG_S * 1000) {
			note("nobody is answered any more after %" PRIu64 " requests", heard);
			good = false;
		}
	}
	for (i = 0; i < TALKERS; i++) {
		*said += atomic_load(&c[i].report->ops);
		good &= child_stop(&c[i], "talker");
	}
	return good;
}

bool
case_talk(const struct options *o)
{
	struct dice d = {o->seed};
	struct innocents in;
	struct usage before;
	uint64_t said = 0;
	struct host h;
	bool good;

	if (!host_up(&h, o->karstd))
		return false;
	/* allocations that are made once and kept are made first */
	good = talk(&h, &d, 0, WARM, NULL, &said);
	good = innocents_start(&in, &h, dice_roll(&d)) && good;
	sleep_ms(500);
	host_usage(&h, &before);
	said = 0;
	good = good && talk(&h, &d, o->seconds, REQUESTS, &in, &said);
	note("%" PRIu64 " requests were answered", said);
	good &= host_settles(&h, &before, o->grown);
	good &= innocents_stop(&in);
	return host_end(&h, good);
}
