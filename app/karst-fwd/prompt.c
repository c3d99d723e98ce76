/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * Read and execute commands.  This has its own loop instead of cmdline_interact(), for two reasons:
 * it reports ports that disappear while nobody types, and it explains errors in more detail than
 * "Bad arguments".
 */
#include "prompt.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <cmdline_rdline.h>

#include "commands.h"

#define PROMPT     "karst-fwd> "
#define LINE_BYTES 4096 /* of a line of a file, including newline and NUL */
#define TYPED_MAX  512u /* of rdline */
#define DEPTH_MAX  8u   /* limit of files that load files; each level takes some of the stack */

struct fwd_prompt {
	struct rdline *rdl;
	bool terminal;
	bool too_long; /* the line being typed: rdline has dropped a part of it */
	struct termios before;
};

static int
put(struct rdline *rdl, char c)
{
	putchar(c);
	return 0;
}

/*
 * Executes a line.  A line that is too long is not executed at all, because its beginning may be
 * another command.
 */
static void
validate(struct rdline *rdl, const char *line, unsigned int size)
{
	const struct fwd_prompt *p = rdline_get_opaque(rdl);

	if (p->too_long)
		fwd_command_fail(
			"this line is too long, and was not carried out; up to %u characters "
			"are allowed, in a file up to %u",
			TYPED_MAX, LINE_BYTES - 2);
	else
		(void)fwd_command(line);
}

static int
complete(struct rdline *rdl, const char *line, char *to, unsigned int room, int *state)
{
	int rc;

	fwd_command_complete(line, state, to, room, &rc);
	return rc;
}

struct fwd_prompt *
fwd_prompt_new(void)
{
	struct fwd_prompt *p = calloc(1, sizeof(*p));
	struct termios raw;

	if (p == NULL)
		return NULL;
	p->rdl = rdline_new(put, validate, complete, p);
	if (p->rdl == NULL) {
		free(p);
		return NULL;
	}
	p->terminal = tcgetattr(STDIN_FILENO, &p->before) == 0;
	if (p->terminal) {
		raw = p->before;
		raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
		raw.c_cc[VMIN] = 1;
		raw.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
	rdline_newline(p->rdl, PROMPT);
	fflush(stdout);
	return p;
}

static bool
take(struct fwd_prompt *p, const char *text, ssize_t n)
{
	ssize_t i;

	for (i = 0; i < n; i++) {
		int rc;

		/* rdline's buffer ends with a newline */
		if (isprint((unsigned char)text[i]) &&
			strlen(rdline_get_buffer(p->rdl)) > TYPED_MAX)
			p->too_long = true;
		rc = rdline_char_in(p->rdl, text[i]);
		if (rc == RDLINE_RES_VALIDATED) {
			p->too_long = false;
			const char *line = rdline_get_buffer(p->rdl);
			const char *last = rdline_get_history_item(p->rdl, 0);

			if (last == NULL || strncmp(line, last, strcspn(line, "\n")) != 0 ||
				strlen(last) != strcspn(line, "\n"))
				rdline_add_history(p->rdl, line);
			if (fwd_commands_quit())
				return false;
			rdline_newline(p->rdl, PROMPT);
		} else if (rc == RDLINE_RES_EOF || rc == RDLINE_RES_EXITED) {
			return false;
		}
	}
	return true;
}

bool
fwd_prompt_poll(struct fwd_prompt *p, int ms)
{
	struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
	char text[256];
	ssize_t n;
	bool more;

	if (poll(&fd, 1, ms) <= 0)
		return true; /* timeout, or a signal, which the caller checks for */
	n = read(STDIN_FILENO, text, sizeof(text));
	if (n < 0 && errno == EINTR)
		return true;
	if (n <= 0)
		return false;
	more = take(p, text, n);
	fflush(stdout);
	return more;
}

void
fwd_prompt_free(struct fwd_prompt *p)
{
	if (p->terminal)
		tcsetattr(STDIN_FILENO, TCSANOW, &p->before);
	rdline_free(p->rdl);
	free(p);
}

/*
 * Reads the next line, with a newline at its end.
 * @return 1; 0: end of file; -1: not a valid line, or a read error; @why tells which.
 */
static int
read_line(FILE *in, char line[LINE_BYTES], const char **why)
{
	size_t n = 0;
	int c;

	while ((c = getc(in)) != EOF && c != '\n' && c != '\0' && n < LINE_BYTES - 2)
		line[n++] = (char)c;
	line[n] = '\n';
	line[n + 1] = '\0';
	if (c == EOF && !ferror(in))
		return n != 0;
	*why = c == EOF     ? strerror(errno)
		: c == '\0' ? "a NUL byte; text is allowed"
		: c != '\n' ? "this line is too long; up to 4094 characters are allowed"
			    : NULL;
	return *why == NULL ? 1 : -1;
}

static_assert(LINE_BYTES - 2 == 4094, "as the message says");

/*
 * Executes a file.  Stops at a line that is not text, because it is not known where the next line
 * begins.
 */
static int
run_file(FILE *in, const char *path)
{
	char line[LINE_BYTES];
	uint32_t number = 0;
	const char *why;
	int rc = 0, is = 1;

	while (!fwd_commands_quit() && !fwd_interrupted) {
		number++;
		is = read_line(in, line, &why);
		if (is <= 0)
			break;
		if (fwd_command(line) != 0) {
			fprintf(stderr, "karst-fwd: %s:%u: this command failed: %s", path, number,
				line);
			rc = -1;
		}
		fflush(stdout);
	}
	if (is < 0)
		fprintf(stderr, "karst-fwd: %s:%u: %s; the file was carried out up to there\n",
			path, number, why);
	return is < 0 ? -1 : rc;
}

int
fwd_prompt_file(const char *path)
{
	FILE *in;
	int rc;

	if (fwd_commands.depth == DEPTH_MAX) {
		fprintf(stderr,
			"karst-fwd: %s: not loaded: files that load each other are allowed up to %u "
			"deep\n",
			path, DEPTH_MAX);
		return -1;
	}
	in = fopen(path, "r");
	if (in == NULL) {
		fprintf(stderr, "karst-fwd: --cmdline-file %s: %s\n", path, strerror(errno));
		return -1;
	}
	fwd_commands.depth++;
	rc = run_file(in, path);
	fwd_commands.depth--;
	fclose(in);
	return rc;
}
