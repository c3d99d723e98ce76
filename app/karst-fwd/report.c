/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include "report.h"

#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_lcore.h>

#include "gen.h"
#include "play.h"
#include "report_json.h"

static double
seconds_of(uint64_t cycles)
{
	return (double)cycles / (double)perf_tsc_hz();
}

/* --- ports --- */

json_t *
fwd_report_port(struct fwd_port *p)
{
	struct rte_eth_stats st = {0};
	uint64_t now = rte_rdtsc();
	json_t *o = json_object();
	double s = p->last_tsc == 0 ? 0 : seconds_of(now - p->last_tsc);

	fwd_report_set_count(o, "port", p->id);
	fwd_report_set_text(o, "name", p->name);
	json_object_set_new(o, "gone", json_boolean(fwd_port_is_gone(p)));
	if (fwd_port_is_gone(p) || rte_eth_stats_get(p->id, &st) != 0)
		return o;
	fwd_report_set_count(o, "rx_packets", st.ipackets);
	fwd_report_set_count(o, "rx_missed", st.imissed);
	fwd_report_set_count(o, "rx_bytes", st.ibytes);
	fwd_report_set_count(o, "rx_errors", st.ierrors);
	fwd_report_set_count(o, "rx_nombuf", st.rx_nombuf);
	fwd_report_set_count(o, "tx_packets", st.opackets);
	fwd_report_set_count(o, "tx_errors", st.oerrors);
	fwd_report_set_count(o, "tx_bytes", st.obytes);
	if (s > 0) {
		fwd_report_set_count(
			o, "rx_pps", (uint64_t)((double)(st.ipackets - p->last.ipackets) / s));
		fwd_report_set_count(
			o, "rx_bps", (uint64_t)((double)(st.ibytes - p->last.ibytes) * 8 / s));
		fwd_report_set_count(
			o, "tx_pps", (uint64_t)((double)(st.opackets - p->last.opackets) / s));
		fwd_report_set_count(
			o, "tx_bps", (uint64_t)((double)(st.obytes - p->last.obytes) * 8 / s));
	}
	p->last = st;
	p->last_tsc = now;
	return o;
}

json_t *
fwd_report_xstats(const struct fwd_port *p)
{
	json_t *o = json_object(), *values = json_object();
	int i, n = fwd_port_is_gone(p) ? 0 : rte_eth_xstats_get_names(p->id, NULL, 0);
	struct rte_eth_xstat_name *names = calloc((size_t)n + 1, sizeof(*names));
	struct rte_eth_xstat *xs = calloc((size_t)n + 1, sizeof(*xs));

	fwd_report_set_count(o, "port", p->id);
	if (names != NULL && xs != NULL && n > 0 &&
		rte_eth_xstats_get_names(p->id, names, (unsigned int)n) == n &&
		rte_eth_xstats_get(p->id, xs, (unsigned int)n) == n)
		for (i = 0; i < n; i++)
			fwd_report_set_count(values, names[i].name, xs[i].value);
	json_object_set_new(o, "xstats", values);
	free(names);
	free(xs);
	return o;
}

json_t *
fwd_report_info(const struct fwd_port *p)
{
	struct rte_eth_dev_info info;
	struct rte_eth_link link = {0};
	char mac[RTE_ETHER_ADDR_FMT_SIZE];
	json_t *o = json_object();
	uint16_t mtu = 0;

	fwd_report_set_count(o, "port", p->id);
	fwd_report_set_text(o, "name", p->name);
	json_object_set_new(o, "gone", json_boolean(fwd_port_is_gone(p)));
	rte_ether_format_addr(mac, sizeof(mac), &p->mac);
	fwd_report_set_text(o, "mac", mac);
	rte_ether_format_addr(mac, sizeof(mac), &p->peer);
	fwd_report_set_text(o, "peer", mac);
	if (fwd_port_is_gone(p) || rte_eth_dev_info_get(p->id, &info) != 0)
		return o;
	fwd_report_set_text(o, "driver", info.driver_name);
	if (rte_eth_dev_get_mtu(p->id, &mtu) == 0)
		fwd_report_set_count(o, "mtu", mtu);
	(void)rte_eth_link_get_nowait(p->id, &link);
	fwd_report_set_text(o, "link", link.link_status == RTE_ETH_LINK_UP ? "up" : "down");
	fwd_report_set_count(o, "link_mbps", link.link_speed);
	fwd_report_set_count(o, "rx_queues", info.nb_rx_queues);
	fwd_report_set_count(o, "tx_queues", info.nb_tx_queues);
	return o;
}

/* --- streams --- */

json_t *
fwd_report_forward(const struct fwd *f)
{
	json_t *o = json_object(), *list = json_array();
	uint64_t rx = 0, tx = 0, dropped = 0;
	uint32_t i, k;

	for (i = 0; i < f->nports; i++) {
		json_t *p = json_object();

		fwd_report_set_count(p, "port", f->ports[i].id);
		fwd_report_add_count(p, "rx_packets", 0);
		fwd_report_add_count(p, "tx_packets", 0);
		fwd_report_add_count(p, "tx_dropped", 0);
		for (k = 0; k < f->nstreams; k++) {
			const struct fwd_stream *s = &f->streams[k];

			if (s->rx == &f->ports[i])
				fwd_report_add_count(p, "rx_packets", fwd_read(&s->rx_packets));
			if (s->tx != &f->ports[i])
				continue;
			fwd_report_add_count(p, "tx_packets", fwd_read(&s->tx_packets));
			fwd_report_add_count(p, "tx_dropped", fwd_read(&s->tx_dropped));
		}
		json_array_append_new(list, p);
	}
	for (k = 0; k < f->nstreams; k++) {
		rx += fwd_read(&f->streams[k].rx_packets);
		tx += fwd_read(&f->streams[k].tx_packets);
		dropped += fwd_read(&f->streams[k].tx_dropped);
	}
	fwd_report_set_text(o, "mode", f->mode != NULL ? f->mode->name : f->opts.mode);
	json_object_set_new(o, "running", json_boolean(f->running));
	json_object_set_new(o, "seconds",
		json_real(f->mode == NULL
				? 0
				: seconds_of((f->stop_tsc != 0 ? f->stop_tsc : rte_rdtsc()) -
					  f->start_tsc)));
	fwd_report_set_count(o, "rx_packets", rx);
	fwd_report_set_count(o, "tx_packets", tx);
	fwd_report_set_count(o, "tx_dropped", dropped);
	json_object_set_new(o, "ports", list);
	return o;
}

/* --- generator --- */

/* @n: all; @last: of these, those of the last burst, if the lcore has written both. */
static uint64_t
gen_rate(uint64_t n, uint64_t last, double seconds)
{
	return n > last && seconds > 0 ? (uint64_t)((double)(n - last) / seconds) : 0;
}

static json_t *
gen_to_json(const struct fwd_stream *s)
{
	struct fwd_gen_stats st;
	json_t *o = json_object(), *jitter = json_object();
	double seconds;

	fwd_gen_stats_get(s->gen, &st);
	/* the lcore may have written only one of them yet */
	seconds = st.last_tsc > st.first_tsc ? seconds_of(st.last_tsc - st.first_tsc) : 0;
	fwd_report_set_count(o, "port", s->tx->id);
	fwd_report_set_count(o, "queue", s->tx_queue);
	json_object_set_new(o, "done", json_boolean(fwd_gen_done(s->gen)));
	fwd_report_set_count(o, "packets", st.packets);
	fwd_report_set_count(o, "bytes", st.bytes);
	fwd_report_set_count(o, "messages", st.messages);
	fwd_report_set_count(o, "no_buffer", st.no_buffer);
	json_object_set_new(o, "seconds", json_real(seconds));
	/* the time between the first and the last burst is that of one burst less */
	fwd_report_set_count(o, "bps", gen_rate(st.bytes * 8, st.last_bytes * 8, seconds));
	fwd_report_set_count(o, "pps", gen_rate(st.packets, st.last_packets, seconds));
	fwd_report_set_count(o, "given_up_ns", fwd_report_ns_of(st.skipped));
	fwd_report_put_hist(jitter, fwd_gen_jitter(s->gen));
	json_object_set_new(o, "jitter", jitter);
	return o;
}

json_t *
fwd_report_gen(const struct fwd *f)
{
	json_t *o = json_object(), *list = json_array();
	char text[FWD_RATE_TEXT];
	uint32_t i;

	fwd_rate_text(&f->opts.rate, text);
	fwd_report_set_text(o, "rate", text);
	fwd_report_set_text(o, "source", f->play != NULL ? "capture" : "templates");
	if (f->play != NULL) {
		fwd_report_set_count(o, "capture_frames", f->play->nframes);
		fwd_report_set_count(o, "capture_roce", f->play->roce);
		fwd_report_set_count(o, "capture_other", f->play->other);
		fwd_report_set_count(o, "capture_icrc_mended", f->play->mended);
		fwd_report_set_count(o, "capture_left_out", f->play->left_out);
	}
	for (i = 0; i < f->nstreams; i++)
		if (f->streams[i].gen != NULL && f->mode->generates)
			json_array_append_new(list, gen_to_json(&f->streams[i]));
	json_object_set_new(o, "streams", list);
	return o;
}

json_t *
fwd_report_config(const struct fwd *f)
{
	const struct fwd_opts *p = &f->opts;
	json_t *o = json_object();
	char text[FWD_RATE_TEXT];

	fwd_report_set_text(o, "mode", p->mode);
	fwd_report_set_count(o, "ports", f->nports);
	fwd_report_set_count(o, "lcores_to_forward", rte_lcore_count() - 1);
	fwd_report_set_count(o, "nb_cores", p->nb_cores);
	fwd_report_set_count(o, "rxq", p->rxq);
	fwd_report_set_count(o, "txq", p->txq);
	fwd_report_set_count(o, "burst", p->burst);
	fwd_report_set_text(o, "port_topology", fwd_topology_name(p->topology));
	fwd_report_set_text(o, "idle", fwd_idle_name(p->idle));
	fwd_report_set_count(o, "flows", p->flows);
	fwd_report_set_count(o, "reflect_mtu", p->reflect_mtu);
	fwd_report_set_count(o, "gen_templates", p->ntemplates);
	fwd_rate_text(&p->rate, text);
	fwd_report_set_text(o, "gen_rate", text);
	return o;
}

json_t *
fwd_report_all(struct fwd *f)
{
	json_t *o = json_object(), *ports = json_array(), *xstats = json_array();
	uint32_t i;

	for (i = 0; i < f->nports; i++) {
		json_array_append_new(ports, fwd_report_port(&f->ports[i]));
		json_array_append_new(xstats, fwd_report_xstats(&f->ports[i]));
	}
	json_object_set_new(o, "config", fwd_report_config(f));
	json_object_set_new(o, "ports", ports);
	json_object_set_new(o, "xstats", xstats);
	json_object_set_new(o, "fwd", fwd_report_forward(f));
	json_object_set_new(o, "roce", fwd_report_roce(f));
	json_object_set_new(o, "qp", fwd_report_flows(f));
	json_object_set_new(o, "latency", fwd_report_latency(f));
	json_object_set_new(o, "gen", fwd_report_gen(f));
	return o;
}
