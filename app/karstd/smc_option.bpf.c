/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The TCP option of SMC-R (S1): kind 254 with the identifier E2D4C3D9, in the SYN of a side that
 * supports SMC-R and in the SYN-ACK of a side that supports it as well, and in no other packet.
 *
 * A program that wants the option says so for its own socket, in the map "sockets"
 * (KARST_SOCK_WANT), before it connects or listens.  The option is sent if the address of this
 * machine is in "locals", and the peer's is in "peers" and not in "refused".  KARST_SOCK_SEEN of
 * the established socket says whether both sides have sent it; the storage of a listener's child
 * exists because it is cloned.
 *
 * SYN cookies leave no room to remember an option, so a SYN-ACK with a cookie has none.  Peers in
 * "refused" are not offered the option, but they are answered: whether a SYN-ACK contained it
 * cannot be remembered until the connection is established, and both sides have to have the same
 * information.
 *
 * Each of several daemons attaches a program, and the callback flags belong to the socket: so each
 * program checks whether the socket is one of its own.  The socket of a SYN-ACK does not exist yet;
 * its listener's port is in "listeners", with the number of listeners there.  The entry is removed
 * when the last listener ends, and only then.  Without it SYN-ACKs have no option, and then the
 * connection must not be taken for one with the option, because its client does not take it for
 * one.  So a listener that finds no room there does not use SMC-R, and an option in a SYN counts
 * only if the port is still there when the connection is established.
 *
 * The ends of a connection are recorded in "agreed", which programs cannot access.  By one lookup,
 * which does not wait for the socket's lock, the service gets to know that the socket is a TCP
 * socket, that both sides have sent the option, its addresses, and whether it is still connected.
 * The end is recorded when the kernel changes the state; that fails if a BPF program of another
 * origin, which the administrator has attached to the same cgroup, clears the flag for it.
 *
 * Helpers that require a GPL program are not used.
 */
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "smc_option_map.h"

#define KIND          254
#define OPTION_BYTES  6
#define ROOM_BYTES    8 /* padded to a multiple of 4 */
#define SYN           0x02
#define ACK           0x10
#define COOKIE        2 /* args[0] of a SYN-ACK with a cookie */
#define FAMILY_INET   2
#define FAMILY_INET6  10
#define LINK_LOCAL    0xfe80
#define LINK_MASK     0xffc0
#define SOL_TCP_LEVEL 6
#define SAVE_SYN      27
#define MAX_PREFIXES  64
#define MAX_REFUSED   4096
#define MAX_LISTENERS 65536

struct ip_prefix {
	__u32 bits;
	__u8 ip[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct karst_sock_option);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct kd_smc_option_ends);
} agreed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_PREFIXES);
	__type(key, struct ip_prefix);
	__type(value, __u32);
} locals SEC(".maps"), peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_REFUSED);
	__uint(key_size, 16);
	__uint(value_size, 8);
} refused SEC(".maps");

struct listener {
	__u64 netns;
	__u64 port;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_LISTENERS);
	__type(key, struct listener);
	__type(value, __u32);
} listeners SEC(".maps");

/* Listeners that were counted there. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} counted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, KD_SMC_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void
count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &which);

	if (n != NULL)
		__sync_fetch_and_add(n, 1);
}

static __always_inline struct karst_sock_option *
option_of(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;

	return sk != NULL ? bpf_sk_storage_get(&sockets, sk, NULL, 0) : NULL;
}

static __always_inline void
mapped(__u32 ip4, struct ip_prefix *to)
{
	__u32 *word = (__u32 *)(void *)to->ip;

	word[0] = word[1] = 0;
	word[2] = bpf_htonl(0xffff);
	word[3] = ip4;
}

/* Can an option be used between these two addresses?  @offer: this side offers it. */
static __always_inline int
may(struct bpf_sock_ops *ops, int offer)
{
	struct ip_prefix local = {.bits = 128}, remote = {.bits = 128};

	if (ops->family == FAMILY_INET6) {
		__u32 *l = (__u32 *)(void *)local.ip, *r = (__u32 *)(void *)remote.ip;

		l[0] = ops->local_ip6[0];
		l[1] = ops->local_ip6[1];
		l[2] = ops->local_ip6[2];
		l[3] = ops->local_ip6[3];
		r[0] = ops->remote_ip6[0];
		r[1] = ops->remote_ip6[1];
		r[2] = ops->remote_ip6[2];
		r[3] = ops->remote_ip6[3];
	} else {
		mapped(ops->local_ip4, &local);
		mapped(ops->remote_ip4, &remote);
	}
	if (bpf_map_lookup_elem(&locals, &local) == NULL ||
		bpf_map_lookup_elem(&peers, &remote) == NULL)
		return 0;
	if (offer && bpf_map_lookup_elem(&refused, remote.ip) != NULL) {
		count(KD_SMC_COUNT_HELD_BACK);
		return 0;
	}
	return 1;
}

static __always_inline int
is_there(struct bpf_sock_ops *ops, __u64 where)
{
	__u8 option[OPTION_BYTES] = {KIND, OPTION_BYTES, 0xe2, 0xd4, 0xc3, 0xd9};

	return bpf_load_hdr_opt(ops, option, sizeof(option), where) == OPTION_BYTES;
}

static __always_inline __u32 *
listeners_of(struct bpf_sock_ops *ops)
{
	struct listener l = {.netns = bpf_get_netns_cookie(ops), .port = ops->local_port};

	return bpf_map_lookup_elem(&listeners, &l);
}

/* @return false: there is no room.  If two listeners come and go at the same time, one may find
 * itself removed; for its connections that makes no difference. */
static __always_inline int
enter_listener(struct bpf_sock_ops *ops)
{
	struct listener l = {.netns = bpf_get_netns_cookie(ops), .port = ops->local_port};
	struct bpf_sock *sk = ops->sk;
	__u32 first = 1, *is, *n;

	is = sk != NULL ? bpf_sk_storage_get(&counted, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE)
			: NULL;
	if (is == NULL)
		return 0;
	if (bpf_map_update_elem(&listeners, &l, &first, BPF_NOEXIST) != 0) {
		n = listeners_of(ops);
		if (n == NULL)
			return 0;
		__sync_fetch_and_add(n, 1);
	}
	*is = 1;
	return 1;
}

static __always_inline void
leave_listener(struct bpf_sock_ops *ops)
{
	struct listener l = {.netns = bpf_get_netns_cookie(ops), .port = ops->local_port};
	struct bpf_sock *sk = ops->sk;
	__u32 *is, *n;

	is = sk != NULL ? bpf_sk_storage_get(&counted, sk, NULL, 0) : NULL;
	if (is == NULL || *is == 0)
		return;
	*is = 0;
	n = listeners_of(ops);
	if (n == NULL)
		return;
	__sync_fetch_and_add(n, -1);
	if (*n == 0)
		bpf_map_delete_elem(&listeners, &l);
}

/* Has the packet that is being built to contain the option? */
static __always_inline int
belongs(struct bpf_sock_ops *ops)
{
	struct karst_sock_option *o;

	if ((ops->skb_tcp_flags & SYN) == 0)
		return 0;
	if ((ops->skb_tcp_flags & ACK) == 0) {
		o = option_of(ops);
		return o != NULL && o->want != 0 && may(ops, 1);
	}
	return ops->args[0] != COOKIE && listeners_of(ops) != NULL &&
		is_there(ops, BPF_LOAD_HDR_OPT_TCP_SYN) && may(ops, 0);
}

/* Also for a program that does not want the option any more: its socket may be used for another
 * connection now. */
static __always_inline void
forget(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;

	if (sk != NULL)
		bpf_sk_storage_delete(&agreed, sk);
}

/* The name of a link-local address includes an interface, which is not known here. */
static __always_inline int
is_link_local(__u32 first)
{
	return (bpf_ntohl(first) >> 16 & LINK_MASK) == LINK_LOCAL;
}

static __always_inline void
note_addresses(struct bpf_sock_ops *ops, struct kd_smc_option_ends *e)
{
	e->family = ops->family;
	if (e->family == FAMILY_INET) {
		e->local_ip[0] = ops->local_ip4;
		e->peer_ip[0] = ops->remote_ip4;
		return;
	}
	e->local_ip[0] = ops->local_ip6[0];
	e->local_ip[1] = ops->local_ip6[1];
	e->local_ip[2] = ops->local_ip6[2];
	e->local_ip[3] = ops->local_ip6[3];
	e->peer_ip[0] = ops->remote_ip6[0];
	e->peer_ip[1] = ops->remote_ip6[1];
	e->peer_ip[2] = ops->remote_ip6[2];
	e->peer_ip[3] = ops->remote_ip6[3];
	if (e->family != FAMILY_INET6 || is_link_local(e->local_ip[0]) ||
		is_link_local(e->peer_ip[0]))
		e->family = 0;
}

/* If there is no memory, the service reports that there was no option, which ends the
 * connection. */
static __always_inline void
note_ends(struct bpf_sock_ops *ops, int passive)
{
	struct bpf_sock *sk = ops->sk;
	struct kd_smc_option_ends *e;
	struct listener l;

	if (sk == NULL)
		return;
	e = bpf_sk_storage_get(&agreed, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (e == NULL)
		return;
	e->netns = bpf_get_netns_cookie(ops);
	note_addresses(ops, e);
	e->over = 0;
	e->local_port = bpf_htons((__u16)ops->local_port);
	e->peer_port = bpf_htons((__u16)bpf_ntohl(ops->remote_port));
	l.netns = e->netns;
	l.port = bpf_ntohl(ops->remote_port);
	e->peer_listened = !passive && bpf_map_lookup_elem(&listeners, &l) != NULL;
}

static __always_inline void
want_calls(struct bpf_sock_ops *ops, int listens)
{
	struct karst_sock_option *o = option_of(ops);
	int yes = 1;

	if (o == NULL || o->want == 0)
		return;
	if (listens &&
		(bpf_setsockopt(ops, SOL_TCP_LEVEL, SAVE_SYN, &yes, sizeof(yes)) != 0 ||
			!enter_listener(ops))) {
		o->want = 0; /* its connections do not want it either: they inherit its storage */
		count(KD_SMC_COUNT_NO_ROOM);
		return;
	}
	bpf_sock_ops_cb_flags_set(ops,
		ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG |
			(listens ? BPF_SOCK_OPS_STATE_CB_FLAG : 0));
}

static __always_inline void
write_option(struct bpf_sock_ops *ops)
{
	const __u8 option[OPTION_BYTES] = {KIND, OPTION_BYTES, 0xe2, 0xd4, 0xc3, 0xd9};

	if (bpf_store_hdr_opt(ops, option, sizeof(option), 0) == 0)
		count((ops->skb_tcp_flags & ACK) != 0 ? KD_SMC_COUNT_ANSWERED
						      : KD_SMC_COUNT_OFFERED);
}

static __always_inline void
established(struct bpf_sock_ops *ops, int passive)
{
	struct karst_sock_option *o = option_of(ops);

	if (o == NULL || o->want == 0)
		return;
	/* an option in a SYN that the SYN-ACK did not answer is not agreed on */
	if (is_there(ops, passive ? BPF_LOAD_HDR_OPT_TCP_SYN : 0) && may(ops, 0) &&
		(!passive || listeners_of(ops) != NULL)) {
		o->seen = 1;
		note_ends(ops, passive);
		count(passive ? KD_SMC_COUNT_SEEN_PASSIVE : KD_SMC_COUNT_SEEN_ACTIVE);
	}
	bpf_sock_ops_cb_flags_set(ops,
		(ops->bpf_sock_ops_cb_flags & ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG) |
			BPF_SOCK_OPS_STATE_CB_FLAG);
}

/* The state has changed from args[0] to args[1]. */
static __always_inline void
note_state(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct kd_smc_option_ends *e;

	if (sk == NULL || ops->args[1] != BPF_TCP_CLOSE)
		return;
	if (ops->args[0] == BPF_TCP_LISTEN)
		leave_listener(ops);
	e = bpf_sk_storage_get(&agreed, sk, NULL, 0);
	if (e != NULL)
		e->over = 1;
}

SEC("sockops")
int
karst_smc(struct bpf_sock_ops *ops)
{
	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		forget(ops);
		want_calls(ops, 0);
		break;
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		forget(ops);
		want_calls(ops, 1);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		if (belongs(ops))
			bpf_reserve_hdr_opt(ops, ROOM_BYTES, 0);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		if (belongs(ops))
			write_option(ops);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		established(ops, 0);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		established(ops, 1);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		note_state(ops);
		break;
	default:
		break;
	}
	return 1;
}

char LICENSE[] SEC("license") = "BSD-3-Clause";
