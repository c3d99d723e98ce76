/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The program: see runner.h.  A case has passed if its process has reported that it came to its
 * end, has reported no failed assertion, and then has exited with status 0; or as its Test()
 * demands, by a signal or a status.  A missing report never counts as success.
 */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <getopt.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <criterion/parameterized.h>

#include "runner.h"

#define JOB_SAID_MAX     65536u /* bytes of a case's reports; what exceeds them is not kept */
#define JOB_SOCKET_BYTES 262144 /* that may wait for the runner */
#define JOB_OUTPUT_MAX   65536u /* bytes of a failed case's output that are shown */

/* Made by the linker: where Test() and TestSuite() put their entries. */
extern struct criterion_test *__start_cr_tst[] __attribute__((weak));
extern struct criterion_test *__stop_cr_tst[] __attribute__((weak));
extern struct criterion_suite *__start_cr_sts[] __attribute__((weak));
extern struct criterion_suite *__stop_cr_sts[] __attribute__((weak));

/* One case: a test, or a test with one of its parameters. */
struct job {
	const struct criterion_suite *suite;
	const struct criterion_test *test;
	void *param;

	int fd, pidfd;
	pid_t pid;
	enum case_word at; /* the last phase that it has reported, 0 at first */
	bool failed, skipped, timed_out;
	char *said; /* lines of comment, and their length */
	size_t said_bytes;
	FILE *say;
	char reason[CASE_TEXT_MAX + 1]; /* the reason for skipping */
	int status;
};

static struct {
	struct criterion_test **tests;
	unsigned int num_tests;
	const char *filter;
	bool verbose;
	int output; /* the output of the cases: a file, truncated for each */
	int null;
	unsigned int number, bad; /* cases */
} runner;

static _Noreturn void
runner_bail(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	fflush(stdout);
	_exit(2);
}

/* --- the cases --- */

static int
runner_order(const void *one, const void *other)
{
	const struct criterion_test *a = *(struct criterion_test *const *)one;
	const struct criterion_test *b = *(struct criterion_test *const *)other;
	int suites = strcmp(a->category, b->category);

	return suites != 0 ? suites : strcmp(a->name, b->name);
}

static bool
runner_wants(const struct criterion_test *t)
{
	return runner.filter == NULL ||
		fnmatch(runner.filter, t->data->identifier_, FNM_EXTMATCH) == 0;
}

static void
runner_collect(void)
{
	size_t most = (size_t)(__stop_cr_tst - __start_cr_tst), i;

	runner.tests = calloc(most + 1, sizeof(runner.tests[0]));
	if (runner.tests == NULL)
		runner_bail("no memory");
	/* a linker or a sanitizer may leave gaps */
	for (i = 0; i < most; i++)
		if (__start_cr_tst[i] != NULL && runner_wants(__start_cr_tst[i]))
			runner.tests[runner.num_tests++] = __start_cr_tst[i];
	qsort(runner.tests, runner.num_tests, sizeof(runner.tests[0]), runner_order);
}

static struct criterion_suite
runner_suite(const struct criterion_test *t)
{
	struct criterion_suite **s;

	for (s = __start_cr_sts; s < __stop_cr_sts; s++)
		if (*s != NULL && strcmp((*s)->name, t->category) == 0)
			return **s;
	return (struct criterion_suite){.name = t->category};
}

static struct criterion_test_params
runner_params(const struct criterion_test *t)
{
	static char none;

	if (t->data->param_ != NULL)
		return t->data->param_();
	return (struct criterion_test_params){.params = &none, .length = 1};
}

/* --- reports of a case --- */

/* Converts text to lines of comment, in characters that a line of TAP may have. */
static void
job_comment(FILE *to, const char *text, size_t bytes)
{
	bool begins = true;
	size_t i;

	for (i = 0; i < bytes; i++) {
		unsigned char c = (unsigned char)text[i];

		if (begins)
			fputs("# ", to);
		begins = c == '\n';
		putc(c >= ' ' || c == '\n' || c == '\t' ? c : '?', to);
	}
	if (!begins)
		putc('\n', to);
}

static void
job_hear(struct job *j, const char *word, size_t bytes)
{
	switch (word[0]) {
	case CASE_SETUP:
	case CASE_MAIN:
	case CASE_FINI:
	case CASE_END:
		j->at = (enum case_word)word[0];
		return;
	case CASE_FAILED:
		j->failed = true;
		break;
	case CASE_SKIPPED:
		j->skipped = true;
		memcpy(j->reason, word + 1, bytes - 1);
		j->reason[strcspn(j->reason, "\n")] = '\0';
		return;
	case CASE_LOG:
		break;
	default:
		j->failed = true;
		fprintf(j->say, "# not a word of a case: %d\n", word[0]);
		return;
	}
	if (ftello(j->say) < (off_t)JOB_SAID_MAX)
		job_comment(j->say, word + 1, bytes - 1);
}

/* Reads all reports that have arrived.  Children of the case may keep the socket open, and a case
 * may report without end: no more is read than a socket can hold, where the kernel counts each
 * packet as 256 bytes at least. */
static void
job_hear_all(struct job *j)
{
	char word[1 + CASE_TEXT_MAX];
	unsigned int i;

	for (i = 0; i < JOB_SOCKET_BYTES / 256; i++) {
		ssize_t n = recv(j->fd, word, sizeof(word), MSG_DONTWAIT);

		if (n > 0)
			job_hear(j, word, (size_t)n);
		else if (n == 0 || errno != EINTR)
			return;
	}
}

static double
job_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Waits until the process of the case has ended; kills it when its time is over.  After that, all
 * that it has reported can be read. */
static void
job_wait(struct job *j, double until)
{
	struct pollfd wait[2] = {
		{.fd = j->fd, .events = POLLIN}, {.fd = j->pidfd, .events = POLLIN}};

	while ((wait[1].revents & POLLIN) == 0) {
		double left = until - job_now();
		int n = poll(wait, 2,
			isinf(until)         ? -1
				: left <= 0  ? 0
				: left > 1e6 ? 1000000000
					     : (int)(left * 1e3) + 1);

		if (n < 0 && errno != EINTR)
			runner_bail("poll");
		if (n < 0)
			continue;
		job_hear_all(j);
		if (left <= 0 && (wait[1].revents & POLLIN) == 0) {
			j->timed_out = true;
			kill(j->pid, SIGKILL);
			until = INFINITY;
		}
		/* closed by the case: the missing end report shows that */
		if ((wait[0].revents & POLLHUP) != 0)
			wait[0].fd = -1;
	}
	while (waitpid(j->pid, &j->status, 0) < 0)
		if (errno != EINTR)
			runner_bail("waitpid");
}

/* --- the process of a case --- */

static void
job_start(struct job *j)
{
	const int bytes = JOB_SOCKET_BYTES / 2; /* which the kernel doubles */
	pid_t runner_pid = getpid();
	int fd[2];

	if (ftruncate(runner.output, 0) != 0)
		runner_bail("ftruncate");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) != 0)
		runner_bail("socketpair");
	if (setsockopt(fd[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) != 0)
		runner_bail("SO_SNDBUF");
	fflush(stdout);
	j->pid = fork();
	if (j->pid < 0)
		runner_bail("fork");
	if (j->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != runner_pid)
			_exit(2);
		setsid();
		if (dup2(runner.null, 0) != 0 || dup2(runner.output, 1) != 1 ||
			dup2(runner.output, 2) != 2)
			_exit(2);
		close(runner.null);
		close(runner.output);
		close(fd[0]);
		case_run(j->suite, j->test, j->param, fd[1]);
	}
	close(fd[1]);
	j->fd = fd[0];
	j->pidfd = pidfd_open(j->pid, 0);
	if (j->pidfd < 0) {
		int error = errno;

		kill(j->pid, SIGKILL);
		errno = error;
		runner_bail("pidfd_open");
	}
}

static double
job_limit(const struct job *j)
{
	double limit = j->test->data->timeout;

	if (limit <= 0 && j->suite->data != NULL)
		limit = j->suite->data->timeout;
	return limit > 0 ? limit : INFINITY;
}

/* --- the result --- */

static const char *
job_phase(const struct job *j)
{
	switch (j->at) {
	case CASE_SETUP:
		return "in its setup";
	case CASE_MAIN:
		return "in the test";
	case CASE_FINI:
		return "in its teardown";
	case CASE_END:
		return "after its end";
	default:
		return "before it began";
	}
}

/* @return NULL if the case has done what it must; otherwise what it has not, in @why if that needs
 * a buffer. */
static const char *
job_verdict(const struct job *j, char why[static 256])
{
	const struct criterion_test_extra_data *demand = j->test->data;
	/* a demanded status may end the test in its middle, or come after its end */
	bool at_end = j->at == CASE_END || (demand->exit_code != 0 && j->at == CASE_MAIN);

	if (j->timed_out) {
		snprintf(why, 256, "%s when its %g s were over", job_phase(j), job_limit(j));
		return why;
	}
	if (j->failed)
		return "failed";
	if (WIFSIGNALED(j->status)) {
		if (demand->signal != 0 && WTERMSIG(j->status) == demand->signal &&
			j->at == CASE_MAIN)
			return NULL;
		snprintf(why, 256, "signal %d (%s) %s", WTERMSIG(j->status),
			strsignal(WTERMSIG(j->status)), job_phase(j));
		return why;
	}
	if (WEXITSTATUS(j->status) != (j->skipped ? 0 : demand->exit_code) ||
		!(at_end || j->skipped)) {
		snprintf(why, 256, "exit status %d %s", WEXITSTATUS(j->status), job_phase(j));
		return why;
	}
	if (demand->signal != 0 && !j->skipped) {
		snprintf(why, 256, "no signal %d", demand->signal);
		return why;
	}
	return NULL;
}

/* Prints the output of the case, as comments. */
static void
job_show_output(void)
{
	off_t bytes = lseek(runner.output, 0, SEEK_END);
	char *text;

	if (bytes <= 0)
		return;
	if (bytes > JOB_OUTPUT_MAX)
		bytes = JOB_OUTPUT_MAX;
	text = malloc((size_t)bytes);
	if (text == NULL || pread(runner.output, text, (size_t)bytes, 0) != bytes)
		runner_bail("what a case has printed");
	job_comment(stdout, text, (size_t)bytes);
	free(text);
}

static void
job_report(struct job *j, double seconds)
{
	char why[256];
	const char *wrong = job_verdict(j, why);

	fclose(j->say);
	runner.number++;
	printf("%s %u - %s::%s", wrong != NULL ? "not ok" : "ok", runner.number, j->suite->name,
		j->test->name);
	if (j->skipped && wrong == NULL)
		printf(" # SKIP %s\n", j->reason);
	else if (wrong != NULL)
		printf(" %s (%.2fs)\n# %s:%u\n", wrong, seconds, j->test->data->file_,
			j->test->data->line_);
	else
		printf(" (%.2fs)\n", seconds);
	fwrite(j->said, 1, j->said_bytes, stdout);
	if (wrong != NULL || runner.verbose)
		job_show_output();
	if (wrong != NULL)
		runner.bad++;
	free(j->said);
}

static void
job_case(const struct criterion_suite *suite, const struct criterion_test *test, void *param)
{
	struct job j = {.suite = suite, .test = test, .param = param};
	double began = job_now();

	j.say = open_memstream(&j.said, &j.said_bytes);
	if (j.say == NULL)
		runner_bail("no memory");
	job_start(&j);
	job_wait(&j, began + job_limit(&j));
	close(j.fd);
	close(j.pidfd);
	job_report(&j, job_now() - began);
}

static bool
runner_disabled(const struct criterion_suite *suite, const struct criterion_test *test)
{
	return test->data->disabled || (suite->data != NULL && suite->data->disabled);
}

static void
runner_test(const struct criterion_test *test)
{
	struct criterion_suite suite = runner_suite(test);
	struct criterion_test_params params;
	size_t i;

	if (runner_disabled(&suite, test)) {
		printf("ok %u - %s::%s # SKIP disabled\n", ++runner.number, suite.name, test->name);
		return;
	}
	params = runner_params(test);
	for (i = 0; i < params.length; i++)
		job_case(&suite, test, (char *)params.params + i * params.size);
	if (params.cleanup != NULL)
		params.cleanup(&params);
}

static unsigned int
runner_count(void)
{
	unsigned int n = 0, i;

	for (i = 0; i < runner.num_tests; i++) {
		struct criterion_suite suite = runner_suite(runner.tests[i]);

		if (runner_disabled(&suite, runner.tests[i])) {
			n++;
			continue;
		}
		struct criterion_test_params params = runner_params(runner.tests[i]);

		n += params.length;
		if (params.cleanup != NULL)
			params.cleanup(&params);
	}
	return n;
}

/* --- the command line --- */

static _Noreturn void
runner_usage(const char *program, int status)
{
	fprintf(status == 0 ? stdout : stderr,
		"usage: %s [--filter SUITE/NAME] [--list] [--verbose] [--debug] [-jN] [--tap]\n\n"
		"  --filter PATTERN  only these cases; * ? [...] @(...|...) as in a shell\n"
		"  --list            their names\n"
		"  --verbose         show also what cases print that pass\n"
		"  --debug           run one case in this process, for a debugger\n"
		"  -jN, --tap        as Criterion has them: cases run one after the other, and\n"
		"                    the output always is TAP\n\n"
		"Exit status: 0 all cases passed, 1 not all, 2 they could not be run.\n",
		program);
	exit(status);
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {{"filter", required_argument, NULL, 'F'},
		{"list", no_argument, NULL, 'l'}, {"verbose", no_argument, NULL, 'v'},
		{"debug", no_argument, NULL, 'd'}, {"jobs", required_argument, NULL, 'j'},
		{"tap", no_argument, NULL, 'T'}, {"help", no_argument, NULL, 'h'}, {0}};
	bool list = false, debug = false;
	unsigned int i;
	int c;

	while ((c = getopt_long(argc, argv, "lvdj:h", options, NULL)) != -1) {
		switch (c) {
		case 'F':
			runner.filter = optarg;
			break;
		case 'l':
			list = true;
			break;
		case 'v':
			runner.verbose = true;
			break;
		case 'd':
			debug = true;
			break;
		case 'j':
		case 'T':
			break;
		default:
			runner_usage(argv[0], c == 'h' ? 0 : 2);
		}
	}
	if (optind < argc)
		runner_usage(argv[0], 2);
	runner_collect();
	if (runner.num_tests == 0) {
		fprintf(stderr, "%s: no case matches \"%s\"\n", argv[0],
			runner.filter != NULL ? runner.filter : "*");
		return 2;
	}
	if (list) {
		for (i = 0; i < runner.num_tests; i++)
			printf("%s\n", runner.tests[i]->data->identifier_);
		return 0;
	}
	if (debug) {
		struct criterion_suite suite = runner_suite(runner.tests[0]);

		case_run(&suite, runner.tests[0], runner_params(runner.tests[0]).params, -1);
	}
	runner.null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	runner.output = memfd_create("output of a case", MFD_CLOEXEC);
	if (runner.null < 0 || runner.output < 0 || fcntl(runner.output, F_SETFL, O_APPEND) != 0)
		runner_bail("the files of the cases");
	printf("TAP version 13\n1..%u\n", runner_count());
	for (i = 0; i < runner.num_tests; i++)
		runner_test(runner.tests[i]);
	if (runner.bad != 0)
		printf("# %u of %u failed\n", runner.bad, runner.number);
	fflush(stdout);
	return runner.bad != 0 || ferror(stdout) ? 1 : 0;
}
