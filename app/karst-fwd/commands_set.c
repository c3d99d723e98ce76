/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Implement the commands that change settings. */
#include "commands.h"
#include "play.h"

WORD(set_any2, 2, NULL);

static void
do_set_fwd(void *parsed, struct cmdline *cl, void *data)
{
	struct words *p = parsed;

	if (!fwd_command_is_stopped())
		return;
	fwd_commands.fwd->opts.mode = fwd_mode_of(p->w[2])->name;
	printf("Set %s packet forwarding mode\n", p->w[2]);
}

static void
do_set_idle(void *parsed, struct cmdline *cl, void *data)
{
	struct words *p = parsed;

	if (fwd_command_is_stopped())
		fwd_commands.fwd->opts.idle = (enum fwd_idle)fwd_idle_of(p->w[2]);
}

static void
do_set_number(void *parsed, struct cmdline *cl, void *data)
{
	struct words *p = parsed;
	struct fwd_opts *o = &fwd_commands.fwd->opts;
	bool burst = strcmp(p->w[1], "burst") == 0;
	uint64_t most = burst ? FWD_BURST_MAX : RTE_MAX_LCORE - 1, v;

	if (!fwd_command_is_stopped())
		return;
	if (!fwd_number(p->w[2], 1, most, &v))
		fwd_command_fail("set %s %s: a number from 1 to %llu is allowed", p->w[1], p->w[2],
			(unsigned long long)most);
	else
		*(burst ? &o->burst : &o->nb_cores) = (uint32_t)v;
}

static void
do_set_reflect(void *parsed, struct cmdline *cl, void *data)
{
	struct words *p = parsed;
	uint64_t v;

	if (fwd_command_is_stopped() && fwd_number(p->w[3], 256, 4096, &v))
		fwd_commands.fwd->opts.reflect_mtu = (uint32_t)v;
}

static void
do_set_peer(void *parsed, struct cmdline *cl, void *data)
{
	struct words *p = parsed;
	struct fwd_port *port = NULL;
	struct rte_ether_addr mac;
	uint64_t id;

	if (!fwd_command_is_stopped())
		return;
	if (fwd_number(p->w[2], 0, RTE_MAX_ETHPORTS - 1, &id))
		port = fwd_port_of(fwd_commands.fwd, (uint16_t)id);
	if (port == NULL)
		fwd_command_fail("set eth-peer %s: no such port", p->w[2]);
	else if (!fwd_mac_parse(p->w[3], mac.addr_bytes))
		fwd_command_fail("set eth-peer %s %s: an address as 02:00:00:00:00:01 is allowed",
			p->w[2], p->w[3]);
	else
		port->peer = mac;
}

WORD(set, 0, "set");
WORD(set_fwd, 1, "fwd");
WORD(modes, 2, "io#mac#sink#roce-check#reflect#gen");
WORD(set_idle, 1, "idle");
WORD(idles, 2, "poll#yield#sleep");
WORD(set_number, 1, "burst#nbcore");
WORD(set_reflect, 1, "reflect");
WORD(set_mtu, 2, "mtu");
WORD(mtus, 3, "256#512#1024#2048#4096");
WORD(set_peer, 1, "eth-peer");
WORD(any3, 3, NULL);
COMMAND(fwd_set_fwd, do_set_fwd,
	"set fwd io|mac|sink|roce-check|reflect|gen: what is done with packets", TOK(set),
	TOK(set_fwd), TOK(modes));
COMMAND(fwd_set_idle, do_set_idle,
	"set idle poll|yield|sleep: what lcores do that have nothing to do", TOK(set),
	TOK(set_idle), TOK(idles));
COMMAND(fwd_set_number, do_set_number, "set burst|nbcore N: packets at a time; lcores that forward",
	TOK(set), TOK(set_number), TOK(set_any2));
COMMAND(fwd_set_reflect, do_set_reflect,
	"set reflect mtu 256|512|1024|2048|4096: payload of responses to READs", TOK(set),
	TOK(set_reflect), TOK(set_mtu), TOK(mtus));
COMMAND(fwd_set_peer, do_set_peer, "set eth-peer PORT MAC: destination of what a port sends",
	TOK(set), TOK(set_peer), TOK(set_any2), TOK(any3));

/* --- the generator --- */

static void
do_set_rate(void *parsed, struct cmdline *cl, void *data)
{
	struct words *p = parsed;
	const char *why;

	if (fwd_command_is_stopped() &&
		fwd_rate_parse(p->w[3], &fwd_commands.fwd->opts.rate, &why) != 0)
		fwd_command_fail("set gen rate %s: %s", p->w[3], why);
}

static void
add_template(const char *text, bool only)
{
	struct fwd_opts *o = &fwd_commands.fwd->opts;
	struct fwd_template t;
	char why[FWD_WHY];

	if (!fwd_command_is_stopped())
		return;
	if (fwd_template_parse(&t, text, why) != 0) {
		fwd_command_fail("template: %s", why);
	} else if (!only && o->ntemplates == FWD_TEMPLATES_MAX) {
		fwd_command_fail("there are %u templates already, and no more are allowed",
			FWD_TEMPLATES_MAX);
	} else {
		if (only)
			o->ntemplates = 0;
		o->templates[o->ntemplates++] = t;
		fwd_play_free(fwd_commands.fwd->play);
		fwd_commands.fwd->play = NULL;
	}
}

static void
do_set_template(void *parsed, struct cmdline *cl, void *data)
{
	add_template(((struct words *)parsed)->rest, true);
}

static void
do_add_template(void *parsed, struct cmdline *cl, void *data)
{
	add_template(((struct words *)parsed)->rest, false);
}

static void
do_set_pcap(void *parsed, struct cmdline *cl, void *data)
{
	struct words *p = parsed;
	struct fwd_play *play;
	char why[512];

	if (!fwd_command_is_stopped())
		return;
	play = fwd_play_open(p->rest, why, sizeof(why));
	if (play == NULL) {
		fwd_command_fail("capture: %s", why);
		return;
	}
	fwd_play_free(fwd_commands.fwd->play);
	fwd_commands.fwd->play = play;
	printf("%u frames, %llu of them RoCEv2", play->nframes, (unsigned long long)play->roce);
	if (play->left_out != 0)
		printf("; %llu more are not whole in the file, and left out",
			(unsigned long long)play->left_out);
	putchar('\n');
}

WORD(set_gen, 1, "gen");
WORD(rate, 2, "rate");
WORD(template, 2, "template");
WORD(pcap, 2, "pcap");
WORD(add, 0, "add");
REST(rest);
COMMAND(fwd_set_rate, do_set_rate, "set gen rate max|10Gbps|2.5Mbps|1000pps: of each port",
	TOK(set), TOK(set_gen), TOK(rate), TOK(any3));
COMMAND(fwd_set_template, do_set_template,
	"set gen template KEY=VALUE ...: what to generate; 'help template' has the keys", TOK(set),
	TOK(set_gen), TOK(template), TOK(rest));
COMMAND(fwd_add_template, do_add_template,
	"add gen template KEY=VALUE ...: one more, which takes turns", TOK(add), TOK(set_gen),
	TOK(template), TOK(rest));
COMMAND(fwd_set_pcap, do_set_pcap,
	"set gen pcap file=PATH src=IP dst=IP smac=MAC dmac=MAC loops=N: play a capture", TOK(set),
	TOK(set_gen), TOK(pcap), TOK(rest));
