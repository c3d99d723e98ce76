/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/*
 * The loop is our own, and not cmdline_interact(): ports that go are reported while nobody types,
 * and what is wrong with a command is said in more words than "Bad arguments".
 */
#include "prompt.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <cmdline_rdline.h>

#define PROMPT     "karst-fwd> "
#define LINE_BYTES 4096

struct fwd_prompt {
	struct rdline *rdl;
	bool terminal;
	struct termios before;
};

static int
put(struct rdline *rdl, char c)
{
	putchar(c);
	return 0;
}

static void
validate(struct rdline *rdl, const char *line, unsigned int size)
{
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
		int rc = rdline_char_in(p->rdl, text[i]);

		if (rc == RDLINE_RES_VALIDATED) {
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
		return true; /* the time is over, or a signal came, which the caller looks for */
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

int
fwd_prompt_file(const char *path)
{
	FILE *in = fopen(path, "r");
	char line[LINE_BYTES];
	uint32_t number = 0;
	int rc = 0;

	if (in == NULL) {
		fprintf(stderr, "karst-fwd: --cmdline-file %s: %s\n", path, strerror(errno));
		return -1;
	}
	while (!fwd_commands_quit() && !fwd_interrupted &&
		fgets(line, (int)sizeof(line) - 1, in) != NULL) {
		number++;
		if (strchr(line, '\n') == NULL)
			strcat(line, "\n");
		if (fwd_command(line) != 0) {
			fprintf(stderr, "karst-fwd: %s:%u: this command failed: %s", path, number,
				line);
			rc = -1;
		}
		fflush(stdout);
	}
	fclose(in);
	return rc;
}
