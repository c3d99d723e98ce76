/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The same in C++, with the inline parts of the headers. */
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <karst.h>
#include <karst_embed.h>

/* Compiled, so that the inline functions are. */
int
post_one(karst_qp *qp, karst_cq *cq)
{
	const karst_cqe *done;
	karst_send_wqe *wqe;

	if (karst_send_room(qp, 1) == 0)
		return -ENOMEM;
	wqe = karst_send_slot(qp, 0);
	wqe->rdma.rkey = karst_inc_rkey(wqe->rdma.rkey);
	karst_cq_take(cq, karst_cq_peek(cq, &done));
	return karst_send_publish(qp, 1);
}

int
main()
{
	karst_context *ctx;
	int ret = karst_open("/nonexistent/karst.sock", nullptr, &ctx);

	if (ret != -ENOENT || std::strstr(karst_why(), "/nonexistent/karst.sock") == nullptr)
		return 1;
	std::printf("attached programs use karst %s: %s\n", karst_version(), karst_why());
	return 0;
}
