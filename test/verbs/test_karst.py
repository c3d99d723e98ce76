# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Tests of what rdma-core's tests do not cover; pyverbs.py runs this file together with them."""
import errno

import pyverbs.enums as e
import pyverbs.mem_alloc as mem
import tests.utils as u
from pyverbs.addr import AH
from pyverbs.cq import CQ, CQEX, CqInitAttrEx
from pyverbs.device import Context
from pyverbs.flow import Flow, FlowAttr
from pyverbs.mr import MR
from pyverbs.pd import PD, ParentDomain, ParentDomainContext, ParentDomainInitAttr
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr, QPInitAttrEx
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wq import WQ, WQInitAttr
from pyverbs.wr import SGE, SendWR
from tests.base import RCResources, RDMATestCase, UDResources


class KarstTest(RDMATestCase):
    def setUp(self):
        super().setUp()
        self.ctx = Context(name=self.dev_name)

    def tearDown(self):
        self.ctx.close()
        super().tearDown()

    def create_players(self, resource):
        self.client = resource(**self.dev_info)
        self.server = resource(**self.dev_info)
        self.client.pre_run(self.server.psns, self.server.qps_num)
        self.server.pre_run(self.client.psns, self.client.qps_num)

    def refused(self, code, call, *args, **kwargs):
        with self.assertRaises(PyverbsRDMAError) as raised:
            call(*args, **kwargs)
        self.assertEqual(raised.exception.error_code, code, str(raised.exception))

    def qp(self, pd, cq, qp_type=e.IBV_QPT_RC):
        return QP(pd, QPInitAttr(qp_type=qp_type, scq=cq, rcq=cq, cap=QPCap(4, 4, 1, 1)), QPAttr())


class Refused(KarstTest):
    def test_what_is_not_offered(self):
        """What doc/verbs.rst lists as not offered fails with EOPNOTSUPP, and has no effect."""
        pd, cq = PD(self.ctx), CQ(self.ctx, 10)
        qp = self.qp(pd, cq)
        srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=4)))
        self.refused(errno.EOPNOTSUPP, qp.modify, QPAttr(), e.IBV_QP_CAP)
        # these are offered, but not in states before RTS
        for mask in (e.IBV_QP_RATE_LIMIT, e.IBV_QP_PATH_MIG_STATE):
            self.refused(errno.EINVAL, qp.modify, QPAttr(), mask)
        self.refused(errno.EOPNOTSUPP, qp.query_ece)
        self.refused(errno.EOPNOTSUPP, Flow, qp, FlowAttr(num_of_specs=0))
        self.refused(errno.EOPNOTSUPP, WQ, self.ctx, WQInitAttr(
            wq_context=None, wq_pd=pd, wq_cq=cq, wq_type=e.IBV_WQT_RQ, max_wr=1, max_sge=1))
        self.refused(errno.EOPNOTSUPP, srq.modify, SrqAttr(max_wr=8), e.IBV_SRQ_MAX_WR)
        self.refused(errno.EOPNOTSUPP, srq.get_srq_num)
        self.refused(errno.EOPNOTSUPP, PD, self.ctx, handle=pd.handle)
        self.refused(errno.EOPNOTSUPP, Context, cmd_fd=self.ctx.cmd_fd)
        self.refused(errno.EOPNOTSUPP, CQEX, self.ctx, CqInitAttrEx(
            cqe=10, comp_mask=e.IBV_CQ_INIT_ATTR_MASK_FLAGS,
            flags=e.IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN))
        for flag in (e.IBV_WC_EX_WITH_CVLAN, e.IBV_WC_EX_WITH_FLOW_TAG, e.IBV_WC_EX_WITH_TM_INFO,
                     e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK):
            self.refused(errno.EOPNOTSUPP, CQEX, self.ctx, CqInitAttrEx(cqe=10, wc_flags=flag))
        for qp_type in (e.IBV_QPT_RAW_PACKET, 255):
            self.refused(errno.EOPNOTSUPP, self.qp, pd, cq, qp_type)
        self.refused(errno.EOPNOTSUPP, MR, pd, 0, e.IBV_ACCESS_ON_DEMAND, implicit=True)

    def test_calls_of_other_transports(self):
        pd, cq = PD(self.ctx), CQ(self.ctx, 10)
        have = {
            e.IBV_QPT_RC: set(e.ibv_qp_create_send_ops_flags) - {e.IBV_QP_EX_WITH_TSO},
            e.IBV_QPT_UC: {e.IBV_QP_EX_WITH_SEND, e.IBV_QP_EX_WITH_SEND_WITH_IMM,
                           e.IBV_QP_EX_WITH_RDMA_WRITE, e.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
                           e.IBV_QP_EX_WITH_LOCAL_INV, e.IBV_QP_EX_WITH_BIND_MW},
            e.IBV_QPT_UD: {e.IBV_QP_EX_WITH_SEND, e.IBV_QP_EX_WITH_SEND_WITH_IMM},
        }
        for qp_type, ops in have.items():
            for op in e.ibv_qp_create_send_ops_flags:
                init = QPInitAttrEx(
                    qp_type=qp_type, scq=cq, rcq=cq, cap=QPCap(4, 4, 1, 1), pd=pd,
                    comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                    send_ops_flags=op)
                if op in ops:
                    QP(self.ctx, init).close()
                else:
                    self.refused(errno.EOPNOTSUPP, QP, self.ctx, init)


class QueuePairs(KarstTest):
    def send(self, player, wr_id):
        sge = SGE(player.mr.buf, player.msg_size, player.mr.lkey)
        player.qp.post_send(SendWR(wr_id=wr_id, opcode=e.IBV_WR_SEND, num_sge=1, sg=[sge]))

    def leave_completions(self):
        """Creates completions: a success at the client, and flushed receives at both ends."""
        self.create_players(RCResources)
        for player in (self.client, self.server):
            for _ in range(3):
                player.qp.post_recv(u.get_recv_wr(player))
        self.send(self.client, 1)
        u.poll_cq(self.server.cq)
        for player in (self.client, self.server):
            player.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)

    def assert_none_left(self):
        for player in (self.client, self.server):
            self.assertEqual(player.cq.poll(16)[0], 0)

    def test_reset_takes_completions(self):
        self.leave_completions()
        for player in (self.client, self.server):
            player.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
        self.assert_none_left()
        for player in (self.client, self.server):
            player.to_rts()
        u.traffic(self.client, self.server, 3, self.gid_index, self.ib_port)

    def test_destruction_takes_completions(self):
        self.leave_completions()
        for player in (self.client, self.server):
            player.qp.close()
        self.assert_none_left()

    def test_others_keep_completions(self):
        """If two queue pairs use one completion queue, resetting one does not remove the other's
        completions."""
        self.create_players(RCResources)
        other = QP(self.client.pd, self.client.create_qp_init_attr(), QPAttr(port_num=1))
        other.to_init(QPAttr(port_num=1))
        for n, qp in enumerate((self.client.qp, other) * 5):
            wr = u.get_recv_wr(self.client)
            wr.wr_id = n
            qp.post_recv(wr)
        for qp in (self.client.qp, other):
            qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
        self.client.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
        number, wcs = self.client.cq.poll(16)
        self.assertEqual(number, 5)
        self.assertEqual([wc.wr_id for wc in wcs], [1, 3, 5, 7, 9])
        self.assertEqual({wc.qp_num for wc in wcs}, {other.qp_num})

    def test_answer_to_a_datagram(self):
        """An address handle that is created from a completion and the 40 bytes in front of the
        datagram reaches the sender."""
        self.create_players(UDResources)
        self.server.qp.post_recv(u.get_recv_wr(self.server))
        wr, _ = u.get_send_elements(self.client, False)
        u.send(self.client, wr, ah=u.get_global_ah(self.client, self.gid_index, self.ib_port))
        u.poll_cq(self.client.cq)
        wc, = u.poll_cq(self.server.cq)
        self.assertTrue(wc.wc_flags & e.IBV_WC_GRH)
        self.assertEqual(wc.src_qp, self.client.qp.qp_num)
        ah = AH(self.server.pd, wc=wc, grh=self.server.mr.buf, port_num=self.ib_port)
        self.client.qp.post_recv(u.get_recv_wr(self.client))
        wr, _ = u.get_send_elements(self.server, True)
        u.send(self.server, wr, ah=ah)
        u.poll_cq(self.server.cq)
        wc, = u.poll_cq(self.client.cq)
        self.assertEqual(wc.src_qp, self.server.qp.qp_num)


class Memory(KarstTest):
    def test_advice(self):
        on_demand = e.IBV_ACCESS_ON_DEMAND
        pd, other = PD(self.ctx), PD(self.ctx)
        flush = e._IBV_ADVISE_MR_FLAG_FLUSH
        read = e._IBV_ADVISE_MR_ADVICE_PREFETCH
        write = e._IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
        mr = MR(pd, 8192, on_demand | e.IBV_ACCESS_LOCAL_WRITE)
        reader, plain = MR(pd, 8192, on_demand), MR(pd, 8192, e.IBV_ACCESS_LOCAL_WRITE)
        sge = SGE(mr.buf, 8192, mr.lkey)
        self.assertEqual(pd.advise_mr(write, flush, [sge]), 0)
        self.refused(errno.EPERM, other.advise_mr, read, flush, [sge])
        self.refused(errno.EFAULT, pd.advise_mr, read, flush, [SGE(mr.buf + 1, 8192, mr.lkey)])
        self.refused(errno.EFAULT, pd.advise_mr, read, flush, [SGE(mr.buf - 1, 16, mr.lkey)])
        self.refused(errno.ENOENT, pd.advise_mr, read, flush, [sge, SGE(mr.buf, 8, mr.lkey ^ 1)])
        self.refused(errno.ENOENT, pd.advise_mr, read, flush,
                     [SGE(plain.buf, 8192, plain.lkey)])
        self.refused(errno.EINVAL, pd.advise_mr, read, 1 << 20, [sge])
        self.refused(errno.EOPNOTSUPP, pd.advise_mr, 1 << 20, flush, [sge])
        sge = SGE(reader.buf, 8192, reader.lkey)
        self.assertEqual(pd.advise_mr(read, flush, [sge]), 0)
        self.refused(errno.EPERM, pd.advise_mr, write, flush, [sge])

    def test_advice_about_what_is_not_there(self):
        pd = PD(self.ctx)
        at = mem.mmap(length=4096)
        mr = MR(pd, 4096, e.IBV_ACCESS_ON_DEMAND, address=at)
        sge = SGE(at, 4096, mr.lkey)
        self.assertEqual(pd.advise_mr(e._IBV_ADVISE_MR_ADVICE_PREFETCH, 0, [sge]), 0)
        mem.munmap(at, 4096)
        self.refused(errno.EFAULT, pd.advise_mr, e._IBV_ADVISE_MR_ADVICE_PREFETCH, 0, [sge])
        self.assertEqual(pd.advise_mr(e._IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, [sge]), 0)


class ParentDomains(KarstTest):
    def parent(self, allocate, free):
        self.pd = PD(self.ctx)
        self.pd_context = ParentDomainContext(self.pd, allocate, free)
        return ParentDomain(self.ctx, attr=ParentDomainInitAttr(
            pd=self.pd, pd_context=self.pd_context))

    def test_allocators(self):
        """The functions that allocate and free a structure are called with its type."""
        there = {}

        def allocate(pd, context, size, alignment, resource_type):
            at = mem.posix_memalign(size, alignment)
            there[at] = resource_type
            return at

        def free(pd, context, ptr, resource_type):
            self.assertEqual(there.pop(ptr), resource_type)
            mem.free(ptr)

        parent = self.parent(allocate, free)
        cq = CQEX(self.ctx, CqInitAttrEx(cqe=10, comp_mask=e.IBV_CQ_INIT_ATTR_MASK_PD,
                                         parent_domain=parent))
        srq = SRQ(parent, SrqInitAttr(SrqAttr(max_wr=4)))
        qp = self.qp(parent, cq)
        self.assertEqual(sorted(there.values()), [1, 2, 3])
        # if an object cannot be created, its memory is freed
        self.refused(errno.EINVAL, CQEX, self.ctx, CqInitAttrEx(
            cqe=1 << 30, comp_mask=e.IBV_CQ_INIT_ATTR_MASK_PD, parent_domain=parent))
        self.assertEqual(len(there), 3)
        for used in (qp, srq, cq):
            used.close()
        self.assertEqual(there, {})
        parent.close()

    def test_allocator_has_no_memory(self):
        parent = self.parent(lambda *_: 0, lambda *_: self.fail('nothing was given'))
        self.refused(errno.ENOMEM, SRQ, parent, SrqInitAttr(SrqAttr(max_wr=4)))
        parent.close()

    def test_allocator_of_wrong_alignment(self):
        freed = []
        at = mem.posix_memalign(8192, 64)
        parent = self.parent(lambda *_: at + 8, lambda pd, context, ptr, kind: freed.append(ptr))
        self.refused(errno.EINVAL, SRQ, parent, SrqInitAttr(SrqAttr(max_wr=4)))
        self.assertEqual(freed, [at + 8])
        parent.close()
        mem.free(at)
