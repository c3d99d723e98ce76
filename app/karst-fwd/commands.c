/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Implement the commands with rte_cmdline, which also completes them.  Commands that testpmd has,
 * too, have its names.
 */
#include "commands.h"

#include <poll.h>
#include <stdarg.h>

#include "prompt.h"
#include "show.h"

struct fwd_commands fwd_commands;

void
fwd_command_fail(const char *fmt, ...)
{
	va_list ap;

	fwd_commands.failed = true;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

bool
fwd_command_is_stopped(void)
{
	if (fwd_commands.fwd->running)
		fwd_command_fail("packets are being forwarded; 'stop' first");
	return !fwd_commands.fwd->running;
}

/* --- start, stop, quit, wait --- */

static void
start(uint32_t tx_first)
{
	struct fwd *f = fwd_commands.fwd;

	if (f->running) {
		fwd_command_fail("packets are being forwarded already");
		return;
	}
	if (fwd_start(f, tx_first) != 0) {
		fwd_command_fail("not started");
		return;
	}
	printf("%s packet forwarding - ports=%u - cores=%u - streams=%u\n", f->mode->name,
		f->nports, f->nlcores, f->nstreams);
}

static void
do_start(void *parsed, struct cmdline *cl, void *data)
{
	start(0);
}

static void
do_tx_first(void *parsed, struct cmdline *cl, void *data)
{
	start(1);
}

static void
do_tx_first_n(void *parsed, struct cmdline *cl, void *data)
{
	struct words *p = parsed;
	uint64_t n;

	if (fwd_number(p->w[2], 1, 65535, &n))
		start((uint32_t)n);
	else
		fwd_command_fail("start tx_first %s: a number of bursts from 1 to 65535 is allowed",
			p->w[2]);
}

static void
do_stop(void *parsed, struct cmdline *cl, void *data)
{
	if (!fwd_commands.fwd->running) {
		fwd_command_fail("packets are not being forwarded");
		return;
	}
	fwd_stop(fwd_commands.fwd);
	fwd_show(fwd_commands.fwd, "fwd", false);
	printf("\nDone.\n");
}

static void
do_quit(void *parsed, struct cmdline *cl, void *data)
{
	fwd_commands.quit = true;
}

/* Waits until the generator has sent its count, or a capture has ended.  For command files. */
static void
do_wait(void *parsed, struct cmdline *cl, void *data)
{
	struct fwd *f = fwd_commands.fwd;
	const struct fwd_port *gone;

	if (!f->running || !f->mode->generates) {
		fwd_command_fail("wait gen: the generator does not run");
		return;
	}
	while (!fwd_generated(f) && !fwd_interrupted) {
		fwd_ports_look(f);
		poll(NULL, 0, 20);
	}
	gone = fwd_cut_generator(f);
	if (gone != NULL)
		fwd_command_fail("wait gen: port %u is gone, and not all was generated", gone->id);
}

static void
do_wait_rx(void *parsed, struct cmdline *cl, void *data)
{
	struct words *p = parsed;
	struct fwd *f = fwd_commands.fwd;
	uint64_t n;

	if (!f->running) {
		fwd_command_fail("wait rx: packets are not being forwarded");
	} else if (!fwd_number(p->w[2], 1, UINT64_MAX, &n)) {
		fwd_command_fail("wait rx %s: a number of packets from 1 is allowed", p->w[2]);
	} else {
		while (fwd_received(f) < n && !fwd_interrupted && fwd_can_receive(f)) {
			fwd_ports_look(f);
			poll(NULL, 0, 20);
		}
		if (fwd_received(f) < n && !fwd_interrupted)
			fwd_command_fail("wait rx: all ports are gone, %llu packets were received",
				(unsigned long long)fwd_received(f));
	}
}

WORD(start, 0, "start");
WORD(tx_first, 1, "tx_first");
WORD(any2, 2, NULL);
WORD(stop, 0, "stop");
WORD(quit, 0, "quit");
WORD(wait, 0, "wait");
WORD(wait_gen, 1, "gen");
WORD(wait_rx, 1, "rx");
static COMMAND(inst_start, do_start, "start: begin to forward", TOK(start));
static COMMAND(inst_tx_first, do_tx_first,
	"start tx_first: the same, after a burst from each stream", TOK(start), TOK(tx_first));
static COMMAND(inst_tx_first_n, do_tx_first_n, "start tx_first N: the same, after N bursts",
	TOK(start), TOK(tx_first), TOK(any2));
static COMMAND(inst_stop, do_stop, "stop: end forwarding, and say what was forwarded", TOK(stop));
static COMMAND(inst_quit, do_quit, "quit: end the program", TOK(quit));
static COMMAND(inst_wait, do_wait, "wait gen: until all is generated that count or loops asks for",
	TOK(wait), TOK(wait_gen));
static COMMAND(inst_wait_rx, do_wait_rx,
	"wait rx N: until streams have received N packets since the start", TOK(wait), TOK(wait_rx),
	TOK(any2));

/* --- show --- */

static void
each_port(const char *which, void (*act)(struct fwd_port *, const char *, bool), const char *what,
	bool json)
{
	struct fwd *f = fwd_commands.fwd;
	struct fwd_port *port = NULL;
	uint64_t id;
	uint32_t i;

	if (strcmp(which, "all") == 0) {
		for (i = 0; i < f->nports; i++)
			act(&f->ports[i], what, json);
		return;
	}
	if (fwd_number(which, 0, RTE_MAX_ETHPORTS - 1, &id))
		port = fwd_port_of(f, (uint16_t)id);
	if (port != NULL)
		act(port, what, json);
	else
		fwd_command_fail(
			"port %s: no such port; allowed: all, or the number of one of the %u ports",
			which, f->nports);
}

static void
do_show_port(void *parsed, struct cmdline *cl, void *data)
{
	struct words *p = parsed;

	fwd_ports_look(fwd_commands.fwd);
	each_port(p->w[3], fwd_show_port, p->w[2], data != NULL);
}

static void
do_show(void *parsed, struct cmdline *cl, void *data)
{
	struct words *p = parsed;

	fwd_show(fwd_commands.fwd, p->w[1], data != NULL);
}

static void
do_show_fwd(void *parsed, struct cmdline *cl, void *data)
{
	fwd_show(fwd_commands.fwd, "fwd", data != NULL);
}

static void
clear_port(struct fwd_port *port, const char *what, bool json)
{
	if (fwd_port_is_gone(port))
		return;
	if (strcmp(what, "stats") == 0)
		(void)rte_eth_stats_reset(port->id);
	else
		(void)rte_eth_xstats_reset(port->id);
	port->last_tsc = 0;
}

static void
do_clear_port(void *parsed, struct cmdline *cl, void *data)
{
	struct words *p = parsed;

	each_port(p->w[3], clear_port, p->w[2], false);
}

WORD(show, 0, "show");
WORD(port, 1, "port");
WORD(port_what, 2, "stats#xstats#info");
WORD(port_id, 3, NULL);
WORD(json2, 2, "json");
WORD(json4, 4, "json");
WORD(show_what, 1, "roce#qp#gen#latency#config#all");
WORD(fwd1, 1, "fwd");
WORD(stats2, 2, "stats");
WORD(all3, 3, "all");
WORD(clear, 0, "clear");
WORD(clear_what, 2, "stats#xstats");
static COMMAND(inst_show_port, do_show_port, "show port stats|xstats|info all|N [json]: of ports",
	TOK(show), TOK(port), TOK(port_what), TOK(port_id));
static cmdline_parse_inst_t inst_show_port_json = {.f = do_show_port,
	.data = &fwd_commands,
	.help_str = "show port stats|xstats|info all|N json",
	.tokens = {TOK(show), TOK(port), TOK(port_what), TOK(port_id), TOK(json4), NULL}};
static COMMAND(inst_show, do_show,
	"show roce|qp|gen|latency|config|all [json]: what roce-check has seen, its flows, the generator, "
	"latencies by time stamps, settings, or all of it",
	TOK(show), TOK(show_what));
static cmdline_parse_inst_t inst_show_json = {.f = do_show,
	.data = &fwd_commands,
	.help_str = "show roce|qp|gen|latency|config|all json",
	.tokens = {TOK(show), TOK(show_what), TOK(json2), NULL}};
static COMMAND(inst_show_fwd, do_show_fwd, "show fwd stats all [json]: what streams have forwarded",
	TOK(show), TOK(fwd1), TOK(stats2), TOK(all3));
static cmdline_parse_inst_t inst_show_fwd_json = {.f = do_show_fwd,
	.data = &fwd_commands,
	.help_str = "show fwd stats all json",
	.tokens = {TOK(show), TOK(fwd1), TOK(stats2), TOK(all3), TOK(json4), NULL}};
static COMMAND(inst_clear_port, do_clear_port, "clear port stats|xstats all|N: counters begin anew",
	TOK(clear), TOK(port), TOK(clear_what), TOK(port_id));

/* --- help, load --- */

static void do_help(void *parsed, struct cmdline *cl, void *data);

static void
do_help_template(void *parsed, struct cmdline *cl, void *data)
{
	fputs(fwd_template_help(), stdout);
}

static void
do_load(void *parsed, struct cmdline *cl, void *data)
{
	struct words *p = parsed;

	if (fwd_prompt_file(p->w[1]) != 0)
		fwd_commands.failed = true;
}

WORD(help, 0, "help");
WORD(help_template, 1, "template");
WORD(load, 0, "load");
WORD(any1, 1, NULL);
static COMMAND(inst_help, do_help, "help: this list", TOK(help));
static COMMAND(inst_help_template, do_help_template, "help template: what a template can say",
	TOK(help), TOK(help_template));
static COMMAND(
	inst_load, do_load, "load FILE: carry out the commands of a file", TOK(load), TOK(any1));

static cmdline_parse_ctx_t commands[] = {
	&inst_help,
	&inst_help_template,
	&inst_start,
	&inst_tx_first,
	&inst_tx_first_n,
	&inst_stop,
	&inst_quit,
	&inst_wait,
	&inst_wait_rx,
	&inst_load,
	&inst_show_port,
	&inst_show_port_json,
	&inst_show,
	&inst_show_json,
	&inst_show_fwd,
	&inst_show_fwd_json,
	&inst_clear_port,
	&fwd_set_fwd,
	&fwd_set_idle,
	&fwd_set_number,
	&fwd_set_reflect,
	&fwd_set_peer,
	&fwd_set_rate,
	&fwd_set_template,
	&fwd_set_pcap,
	&fwd_add_template,
	NULL,
};

/*
 * Prints the help of the commands whose first @len bytes are @word.  A command "... json" is part
 * of the help of the same command without json.
 */
static uint32_t
print_help(const char *word, size_t len)
{
	uint32_t n = 0;
	size_t i;

	for (i = 0; commands[i] != NULL; i++) {
		if (strncmp(commands[i]->help_str, word, len) != 0 || commands[i]->data != NULL)
			continue;
		printf("  %s\n", commands[i]->help_str);
		n++;
	}
	return n;
}

static void
do_help(void *parsed, struct cmdline *cl, void *data)
{
	print_help("", 0);
}

/*
 * Prints what would be allowed: the commands that begin with the same word, or else all first
 * words.
 */
static void
explain(const char *line, int rc)
{
	size_t skip = strspn(line, " \t"), len = strcspn(line + skip, " \t\r\n"), i;
	const char *word = line + skip, *last = "";

	fwd_commands.failed = true;
	printf("%s '%.*s'; allowed:",
		rc == CMDLINE_PARSE_AMBIGUOUS ? "ambiguous" : "not understood:",
		(int)strcspn(word, "\r\n"), word);
	for (i = 0; commands[i] != NULL; i++)
		if (strncmp(commands[i]->help_str, word, len) == 0)
			break;
	if (commands[i] != NULL && len != 0) {
		putchar('\n');
		print_help(word, len);
		return;
	}
	for (i = 0; commands[i] != NULL; i++) {
		const char *help = commands[i]->help_str;
		size_t n = strcspn(help, " :");

		if (strncmp(help, last, n) != 0 || last[n] == '\0')
			printf(" %.*s", (int)n, help);
		last = help;
	}
	putchar('\n');
}

int
fwd_command(const char *line)
{
	bool outer = fwd_commands.failed;
	int rc;

	fwd_commands.failed = false;
	rc = cmdline_parse(fwd_commands.cl, line);
	if (rc < 0)
		explain(line, rc);
	rc = fwd_commands.failed ? -1 : 0;
	fwd_commands.failed |= outer; /* for a file that a command loads */
	return rc;
}

void
fwd_command_complete(const char *line, int *at, char *to, unsigned int room, int *rc)
{
	*rc = cmdline_complete(fwd_commands.cl, line, at, to, room);
}

bool
fwd_commands_quit(void)
{
	return fwd_commands.quit;
}

int
fwd_commands_init(struct fwd *f)
{
	fwd_commands.fwd = f;
	fwd_commands.cl = cmdline_new(commands, "", -1, 1);
	return fwd_commands.cl != NULL ? 0 : -1;
}

void
fwd_commands_free(void)
{
	if (fwd_commands.cl != NULL)
		cmdline_free(fwd_commands.cl);
	fwd_commands.cl = NULL;
}
