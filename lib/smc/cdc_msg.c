/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* CDC messages on the wire (S4): always 44 bytes, of which the last 18 are reserved. */
#include "karst_smc_msg.h"

#include <errno.h>

#include "karst_hdr.h"

int
karst_smc_cdc_parse(const void *buf, size_t len, struct karst_smc_cdc *msg)
{
	const uint8_t *m = buf;

	if (len < KARST_SMC_CDC_LEN || m[0] != KARST_SMC_CDC || m[1] != KARST_SMC_CDC_LEN)
		return -EPROTO;
	msg->seq = karst_get_be16(m + 2);
	msg->token = karst_get_be32(m + 4);
	msg->prod.wrap = karst_get_be16(m + 10);
	msg->prod.count = karst_get_be32(m + 12);
	msg->cons.wrap = karst_get_be16(m + 18);
	msg->cons.count = karst_get_be32(m + 20);
	msg->prod_flags = m[24];
	msg->conn_flags = m[25];
	return 0;
}

void
karst_smc_cdc_build(const struct karst_smc_cdc *msg, uint8_t m[KARST_SMC_CDC_LEN])
{
	memset(m, 0, KARST_SMC_CDC_LEN);
	m[0] = KARST_SMC_CDC;
	m[1] = KARST_SMC_CDC_LEN;
	karst_put_be16(m + 2, msg->seq);
	karst_put_be32(m + 4, msg->token);
	karst_put_be16(m + 10, msg->prod.wrap);
	karst_put_be32(m + 12, msg->prod.count);
	karst_put_be16(m + 18, msg->cons.wrap);
	karst_put_be32(m + 20, msg->cons.count);
	m[24] = msg->prod_flags;
	m[25] = msg->conn_flags;
}
