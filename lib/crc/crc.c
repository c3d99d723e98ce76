/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The list of kernels, the selection of one, and its self-test on this machine.
 *
 * The selection is the only mutable variable of this library: written by karst_crc_init() before
 * other threads start, read once per burst afterwards.
 */
#include "karst_crc.h"

#include "karst_cpu.h"
#include "karst_counters.h"
#include "karst_log.h"
#include "crc_kernel.h"

#include <errno.h>
#include <stdlib.h>

/* Slowest first. */
static const struct crc_kernel *const kernels[] = {
	&crc_kernel_scalar,
#if defined(__x86_64__)
	&crc_kernel_pclmul,
	&crc_kernel_vpclmul256,
	&crc_kernel_vpclmul512,
	&crc_kernel_gfni512,
#elif defined(__aarch64__)
	&crc_kernel_pmull,
#endif
};

static const struct crc_kernel *chosen = &crc_kernel_scalar;

/* An RC SEND Only of 3 bytes over IPv4 whose ICRC was computed by other software. */
static const uint8_t known_frame[] = {0x52, 0x54, 0x00, 0x00, 0x00, 0x02, 0x52, 0x54, 0x00, 0x00,
	0x00, 0x01, 0x08, 0x00, 0x45, 0x00, 0x00, 0x30, 0x37, 0xf8, 0x40, 0x00, 0x40, 0x11, 0x7e,
	0xc1, 0xc0, 0x00, 0x02, 0x01, 0xc0, 0x00, 0x02, 0x02, 0xc2, 0x40, 0x12, 0xb7, 0x00, 0x1c,
	0x00, 0x00, 0x04, 0x10, 0xff, 0xff, 0x00, 0x00, 0x00, 0x18, 0x80, 0x0a, 0x54, 0x55, 0x7b,
	0x7b, 0x7b, 0x00, 0x78, 0x82, 0x51, 0x36};

#define KNOWN_PAY 54 /* payload of known_frame */

static bool
runs_here(const struct crc_kernel *k)
{
	return (k->needs & ~karst_cpu_features()) == 0;
}

static bool
answers_known(const struct karst_crc_ops *ops)
{
	static const struct {
		uint32_t crc;
		uint16_t len;
		uint8_t first, step;
	} known[] = {
		{0x00000000, 0, 0, 0},
		{0xcbf43926, 9, '1', 1},
		{0x190a55ad, 32, 0x00, 0},
		{0xff6cab0b, 32, 0xff, 0},
		{0x91267e8a, 32, 0x00, 1},
		{0x29058c73, 256, 0x00, 1},
	};
	uint8_t in[256], out[256];

	for (size_t i = 0; i < KARST_DIM(known); i++) {
		for (unsigned int j = 0; j < known[i].len; j++)
			in[j] = (uint8_t)(known[i].first + j * known[i].step);
		if (~ops->update(KARST_CRC32_INIT, in, known[i].len) != known[i].crc)
			return false;
		if (~ops->copy(KARST_CRC32_INIT, out, in, known[i].len) != known[i].crc ||
			memcmp(out, in, known[i].len) != 0)
			return false;
	}
	return true;
}

/* Tests lengths around every boundary of a kernel, at odd addresses and from an odd state. */
static bool
agrees_with_scalar(const struct karst_crc_ops *ops)
{
	uint8_t in[1200], out[sizeof(in)];

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)(i * i * 31 + i / 7);
	for (size_t len = 0; len < sizeof(in) - 3; len += len < 200 ? 1 : 37) {
		const uint8_t *p = in + len % 4;
		uint32_t want = crc_kernel_scalar.ops.update((uint32_t)len, p, len);

		memset(out, 0x5a, sizeof(out));
		if (ops->update((uint32_t)len, p, len) != want ||
			ops->copy((uint32_t)len, out + 1, p, len) != want ||
			memcmp(out + 1, p, len) != 0 || out[0] != 0x5a || out[len + 1] != 0x5a)
			return false;
	}
	return true;
}

static bool
seals_and_verifies(const struct crc_kernel *k)
{
	uint8_t frame[sizeof(known_frame)];
	struct karst_pkt pkt = {.data = frame, .len = sizeof(frame)};
	struct karst_pkt *pkts[] = {&pkt};
	struct karst_seg seg = {known_frame + KNOWN_PAY, sizeof(known_frame) - KNOWN_PAY - 5};
	struct karst_seal job = {
		.l3 = frame + 14, .pay = frame + KNOWN_PAY, .segs = &seg, .nsegs = 1, .pad = 1};

	memcpy(frame, known_frame, KNOWN_PAY);
	memset(frame + KNOWN_PAY, 0xff, sizeof(frame) - KNOWN_PAY);
	if (k->verify_burst(pkts, 1) != 1 || pkt.drop != KARST_DROP_ICRC)
		return false;
	k->seal_burst(&job, 1);
	pkt.drop = KARST_DROP_NONE;
	return memcmp(frame, known_frame, sizeof(frame)) == 0 && k->verify_burst(pkts, 1) == 0;
}

/* Of four frames, the third has another PSN than its ICRC covers; only its sum may differ. */
static bool
sums_known(const struct crc_kernel *k)
{
	uint8_t wrong[sizeof(known_frame)];
	struct karst_icrc_known known;
	uint32_t want;

	memcpy(wrong, known_frame, sizeof(wrong));
	wrong[KNOWN_PAY - 1] ^= 1;
	for (unsigned int i = 0; i < 4; i++) {
		known.data[i] = i == 2 ? wrong : known_frame;
		known.len[i] = sizeof(known_frame);
	}
	want = k->known_tail == 0 ? 0 : crc_known_sum(wrong, sizeof(wrong));
	k->known_sums(&known, 4);
	return known.sum[0] == want && known.sum[1] == want && known.sum[2] != want &&
		known.sum[3] == want;
}

static const struct crc_kernel *
kernel_find(const char *name)
{
	const struct crc_kernel *best = NULL;
	const unsigned int has = karst_cpu_features();

	for (size_t i = 0; i < KARST_DIM(kernels); i++) {
		const struct crc_kernel *k = kernels[i];

		if (name == NULL ? ((k->needs | k->likes) & ~has) == 0
				 : strcmp(name, k->ops.name) == 0)
			best = k;
	}
	return best;
}

int
karst_crc_init(const char *name)
{
	const struct crc_kernel *k;

	if (name == NULL)
		name = getenv("KARST_CRC");
	if (name != NULL && name[0] == '\0')
		name = NULL;
	k = kernel_find(name);
	if (k == NULL) {
		karst_log(KARST_LOG_ERR, "CRC kernel \"%s\" does not exist", name);
		return -ENOENT;
	}
	if (!runs_here(k)) {
		karst_log(KARST_LOG_ERR, "CRC kernel \"%s\" does not run on this machine", name);
		return -ENOTSUP;
	}
	if (!answers_known(&k->ops) || !agrees_with_scalar(&k->ops) || !seals_and_verifies(k) ||
		!sums_known(k)) {
		karst_log(KARST_LOG_ERR, "CRC kernel \"%s\" failed its self-test", k->ops.name);
		return -EIO;
	}
	chosen = k;
	return 0;
}

const struct karst_crc_ops *
karst_crc_ops(void)
{
	return &chosen->ops;
}

const struct karst_crc_ops *
karst_crc_ops_at(unsigned int i, bool *runs)
{
	if (i >= KARST_DIM(kernels))
		return NULL;
	*runs = runs_here(kernels[i]);
	return &kernels[i]->ops;
}

const struct crc_kernel *
crc_kernel_chosen(void)
{
	return chosen;
}
