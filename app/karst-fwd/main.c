/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>

#include "fwd.h"
#include "karst_crc.h"
#include "play.h"
#include "prompt.h"
#include "run_folder.h"
#include "show.h"

#define EXIT_USAGE 2
#define LOOK_MS    100

volatile int fwd_interrupted;

static void
interrupt(int number)
{
	fwd_interrupted = 1;
}

static void
catch_signals(void)
{
	struct sigaction act = {.sa_handler = interrupt};

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
}

/*
 * Handles --help and --version, which need no EAL.  No EAL option before "--" has such a name with
 * another meaning.
 */
static bool
asks_for_help(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0)
			fwd_opts_help();
		else if (strcmp(argv[i], "--version") == 0)
			puts("karst-fwd " KARST_VERSION);
		else
			continue;
		return true;
	}
	return false;
}

/*
 * Checks that all ports of --vdev exist.  EAL continues without a device that it could not create,
 * and traffic would then bypass it.  The options of EAL are the first @n words.
 * @return 0, or -1: a port is missing.
 */
static int
check_vdevs(int n, char **argv)
{
	static const char option[] = "--vdev", net[] = "net_";
	const size_t len = sizeof(option) - 1;
	int i;

	for (i = 1; i < n; i++) {
		const char *device;
		char name[RTE_ETH_NAME_MAX_LEN];
		uint16_t port;

		if (strncmp(argv[i], option, len) != 0)
			continue;
		if (argv[i][len] == '=')
			device = argv[i] + len + 1;
		else if (argv[i][len] == '\0' && i + 1 < n)
			device = argv[++i];
		else
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(device, ","), device);
		if (strncmp(name, net, sizeof(net) - 1) != 0 ||
			rte_eth_dev_get_port_by_name(name, &port) == 0)
			continue;
		fprintf(stderr,
			"karst-fwd: there is no port %s, which --vdev asks for; what is wrong "
			"with it stands above\n",
			name);
		return -1;
	}
	return 0;
}

/* Starts EAL.  The options of EAL end at "--".  EAL reports its own errors. */
static int
start_eal(int argc, char **argv)
{
	char why[256];
	int n;

	if (run_folder_choose(why, sizeof(why)) != 0) {
		fprintf(stderr, "karst-fwd: %s\n", why);
		return -1;
	}
	n = rte_eal_init(argc, argv);
	if (n >= 0 && check_vdevs(n, argv) == 0)
		return n;
	if (n >= 0) {
		(void)rte_eal_cleanup();
		return -1;
	}
	fprintf(stderr,
		"karst-fwd: DPDK does not start: %s; its own words are above.  Its options stand before "
		"'--', those of karst-fwd behind.  Without huge pages there have to be --no-huge and -m\n",
		rte_strerror(rte_errno));
	return -1;
}

static int
check_lcores(void)
{
	if (rte_lcore_count() > 1)
		return 0;
	fprintf(stderr,
		"karst-fwd: DPDK has one lcore; a main one and at least one more are allowed: -l 0,1 "
		"before '--', or --lcores=0@0,1@0 on one processor\n");
	return EXIT_USAGE;
}

static int
open_capture(struct fwd *f)
{
	char why[512];

	if (f->opts.gen_pcap == NULL)
		return 0;
	f->play = fwd_play_open(f->opts.gen_pcap, why, sizeof(why));
	if (f->play != NULL)
		return 0;
	fprintf(stderr, "karst-fwd: --gen-pcap: %s\n", why);
	return EXIT_USAGE;
}

/*
 * Runs until the prompt ends or a signal comes.  Without a prompt, also until all generators are
 * done, or all ports are gone.
 */
static void
loop(struct fwd *f)
{
	uint64_t period = f->opts.stats_period_s * rte_get_tsc_hz(), next = rte_rdtsc() + period;
	struct fwd_prompt *p = f->opts.interactive ? fwd_prompt_new() : NULL;

	while (!fwd_interrupted && !fwd_commands_quit()) {
		if (p == NULL)
			usleep(LOOK_MS * 1000);
		else if (!fwd_prompt_poll(p, LOOK_MS))
			break;
		fwd_ports_look(f);
		if (period != 0 && (int64_t)(rte_rdtsc() - next) >= 0) {
			fwd_show_period(f);
			next += period;
		}
		/* without a prompt, there is nothing else to wait for */
		if (p == NULL && f->mode != NULL && f->mode->generates && fwd_generated(f))
			break;
		if (p == NULL && !fwd_can_receive(f))
			break;
	}
	if (p != NULL)
		fwd_prompt_free(p);
}

/* Whether a program without a prompt could not finish, because ports are gone. */
static bool
lost_ports(const struct fwd *f)
{
	const struct fwd_port *gone = fwd_cut_generator(f);

	if (gone != NULL)
		fprintf(stderr, "karst-fwd: port %u is gone, and not all was generated\n",
			gone->id);
	else if (!fwd_can_receive(f))
		fprintf(stderr, "karst-fwd: all ports are gone\n");
	else
		return false;
	return true;
}

static int
work(struct fwd *f)
{
	const struct fwd_opts *o = &f->opts;
	int rc = 0;

	if (o->cmdline_file != NULL && fwd_prompt_file(o->cmdline_file) != 0)
		rc = EXIT_FAILURE;
	if (rc != 0 && !o->interactive)
		return rc;
	if (!fwd_commands_quit() && !f->running && (o->auto_start || !o->interactive) &&
		!(o->cmdline_file != NULL && !o->auto_start) && fwd_start(f, o->tx_first) != 0)
		return EXIT_FAILURE;
	if (!fwd_commands_quit() && (o->interactive || f->running))
		loop(f);
	if (!o->interactive && f->running && lost_ports(f))
		rc = EXIT_FAILURE;
	fwd_stop(f);
	if (!o->interactive && f->mode != NULL)
		fwd_show(f, "fwd", false);
	if (o->stats_json != NULL && fwd_show_json_file(f, o->stats_json) != 0)
		rc = EXIT_FAILURE;
	return rc;
}

static int
fwd_run(struct fwd *f, int argc, char **argv)
{
	int rc = fwd_opts_parse(&f->opts, argc, argv);

	if (rc != 0)
		return rc > 0 ? EXIT_SUCCESS : EXIT_USAGE;
	rc = check_lcores();
	if (rc == 0)
		rc = open_capture(f);
	if (rc == 0)
		rc = fwd_ports_open(f);
	if (rc == 0 && fwd_commands_init(f) != 0)
		rc = EXIT_FAILURE;
	if (rc == 0) {
		catch_signals();
		rc = work(f);
	}
	fwd_streams_free(f);
	fwd_ports_close(f);
	fwd_commands_free();
	fwd_play_free(f->play);
	return rc;
}

int
main(int argc, char **argv)
{
	struct fwd *f;
	int n, rc;

	if (asks_for_help(argc, argv))
		return EXIT_SUCCESS;
	rc = karst_crc_init(NULL);
	if (rc != 0) {
		fprintf(stderr, "karst-fwd: CRC kernels: %s (environment variable KARST_CRC?)\n",
			strerror(-rc));
		return EXIT_USAGE;
	}
	n = start_eal(argc, argv);
	if (n < 0)
		return EXIT_USAGE;
	f = calloc(1, sizeof(*f));
	rc = f == NULL ? EXIT_FAILURE : fwd_run(f, argc - n, argv + n);
	free(f);
	(void)rte_eal_cleanup();
	return rc;
}
