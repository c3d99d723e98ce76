/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "port_kind.h"

#include <string.h>

/* The first match applies: almost any name can be that of a kernel interface. */
static const struct kd_port_kind *const kd_port_kinds[] = {
	&kd_port_pci,
	&kd_port_virtio,
	&kd_port_vdev,
	&kd_port_loopback,
	&kd_port_tap,
	&kd_port_netdev,
};

const struct kd_port_kind *
kd_port_kind_of(const char *device)
{
	size_t i;

	for (i = 0; i < KARST_DIM(kd_port_kinds); i++)
		if (kd_port_kinds[i]->matches(device))
			return kd_port_kinds[i];
	return NULL;
}

void
kd_port_kind_forms(char *to, size_t len)
{
	size_t i, n = 0;

	for (i = 0; i < KARST_DIM(kd_port_kinds) && n < len; i++)
		n += (size_t)snprintf(to + n, len - n, "%s%s",
			i == 0                                     ? ""
				: i + 1 < KARST_DIM(kd_port_kinds) ? ", "
								   : ", or ",
			kd_port_kinds[i]->form);
}

const char *
kd_port_shown(const char *device, char to[KD_TEXT])
{
	static const char key[] = "secret=";
	const char *from = device, *value;
	size_t n = 0;

	while ((value = strstr(from, key)) != NULL && n < KD_TEXT) {
		bool whole = value == device || value[-1] == ',';

		value += sizeof(key) - 1;
		n += (size_t)snprintf(to + n, KD_TEXT - n, "%.*s%s", (int)(value - from), from,
			whole ? "***" : "");
		from = whole ? value + strcspn(value, ",") : value;
	}
	if (n < KD_TEXT)
		snprintf(to + n, KD_TEXT - n, "%s", from);
	return to;
}

struct kd_port_needs
kd_port_needs(const struct kd_conf_port *p)
{
	const struct kd_port_needs few = {.rx_buffers = 1};

	return p->kind->needs != NULL ? p->kind->needs(p) : few;
}

struct kd_port_needs
kd_port_needs_any(const struct kd_conf *c)
{
	struct kd_port_needs any = {.rx_buffers = 0};
	uint32_t i;

	for (i = 0; i < c->nports; i++) {
		const struct kd_port_needs its = kd_port_needs(&c->port[i]);

		any.rx_buffers = its.rx_buffers > any.rx_buffers ? its.rx_buffers : any.rx_buffers;
		any.page_buffers |= its.page_buffers;
		any.trains |= its.trains;
		any.dma |= its.dma;
		any.xdp |= its.xdp;
	}
	return any;
}
