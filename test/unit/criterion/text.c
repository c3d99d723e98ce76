/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* The texts of assertions: see runner.h. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/new/assert.h>

#include "runner.h"

int
cr_vasprintf(char **text, const char *format, va_list args)
{
	int n = vasprintf(text, format, args);

	if (n < 0)
		abort();
	return n;
}

int
cr_asprintf(char **text, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = cr_vasprintf(text, format, args);
	va_end(args);
	return n;
}

void
cr_asprintf_free(char *text)
{
	free(text);
}

char *
cr_translate_assert_msg(int number, ...)
{
	static const char *const words[] = {
		[CRITERION_ASSERT_MSG_FAIL] = "The conditions for this assertion were not met.",
		[CRITERION_ASSERT_MSG_EXPR_FALSE] = "The expression %s is false.",
		[CRITERION_ASSERT_MSG_EXPR_AS_STRINGS_FALSE] =
			"The expression (as strings) %s is false: actual=`%s` expected=`%s`.",
		[CRITERION_ASSERT_MSG_IS_NULL] = "%s is null.",
		[CRITERION_ASSERT_MSG_IS_NOT_NULL] = "%s is not null.",
		[CRITERION_ASSERT_MSG_IS_EMPTY] = "%s is empty.",
		[CRITERION_ASSERT_MSG_IS_NOT_EMPTY] = "%s (`%s`) is not empty.",
		[CRITERION_ASSERT_MSG_FILE_STR_MATCH] =
			"The file contents of %s does not match the string \"%s\".",
		[CRITERION_ASSERT_MSG_FILE_MATCH] =
			"The file contents of %s does not match the contents of %s.",
	};
	char *text = NULL;
	va_list args;

	if (number < 0 || (size_t)number >= sizeof(words) / sizeof(words[0]) ||
		words[number] == NULL) {
		cr_asprintf(&text, "The assertion is false (message %d of Criterion).", number);
		return text;
	}
	va_start(args, number);
	cr_vasprintf(&text, words[number], args);
	va_end(args);
	return text;
}

char *
cri_assert_message(const char *format, ...)
{
	char *text = NULL;
	va_list args;

	/* its macros put this in front, so that no format is empty */
	va_start(args, format);
	cr_vasprintf(&text, format + 1, args);
	va_end(args);
	return text;
}

void
cri_assert_node_init(struct cri_assert_node *node)
{
	memset(node, 0, sizeof(*node));
}

struct cri_assert_node *
cri_assert_node_add(struct cri_assert_node *tree, struct cri_assert_node *node)
{
	if (tree->nchild == tree->maxchild) {
		tree->maxchild = 2 * tree->maxchild + 1;
		tree->children =
			realloc(tree->children, tree->maxchild * sizeof(tree->children[0]));
		if (tree->children == NULL)
			abort();
	}
	tree->children[tree->nchild] = *node;
	return &tree->children[tree->nchild++];
}

void
cri_assert_node_negate(struct cri_assert_node *tree)
{
	unsigned int i;

	for (i = 0; i < tree->nchild; i++)
		cri_assert_node_negate(&tree->children[i]);
	tree->pass = !tree->pass;
}

void
cri_assert_node_term(struct cri_assert_node *tree)
{
	struct cri_assert_param *p;
	unsigned int i;

	for (p = tree->params; p->name != NULL; p++)
		free(p->data);
	for (i = 0; i < tree->nchild; i++)
		cri_assert_node_term(&tree->children[i]);
	free((void *)(uintptr_t)tree->message);
	free(tree->children);
	if (tree->dynrepr)
		free((void *)(uintptr_t)tree->repr);
}

/* Prints each line of @value with @mark in front. */
static void
text_lines(FILE *to, const char *mark, const char *value)
{
	size_t n;

	do {
		n = strcspn(value, "\n");
		fprintf(to, "\n  %s%.*s", mark, (int)n, value);
		value += n;
	} while (*value++ != '\0');
}

/* What did not hold, with its values. */
static void
text_node(FILE *to, const struct cri_assert_node *tree)
{
	const struct cri_assert_param *p;
	unsigned int i;

	if (tree->repr != NULL)
		fprintf(to, "\n  %s", tree->repr);
	if (tree->message != NULL && tree->message[0] != '\0')
		text_lines(to, "", tree->message);
	for (p = tree->params; p->name != NULL; p++) {
		bool is_text = p->type == CRI_ASSERT_RT_STR && p->data != NULL;

		fprintf(to, "\n  %s:", p->name);
		text_lines(to, strcmp(p->name, "actual") == 0 ? "-" : "+",
			is_text ? p->data : "(bytes)");
	}
	/* the children of a node with values have been searched */
	for (i = 0; i < tree->nchild && tree->params[0].name == NULL; i++)
		if (!tree->children[i].pass)
			text_node(to, &tree->children[i]);
}

void
cri_assert_node_send(const char *file, size_t line, struct cri_assert_node *tree)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);

	if (to == NULL)
		abort();
	fprintf(to, "%s:%zu: assertion failed", file, line);
	text_node(to, tree);
	fclose(to);
	case_say(CASE_FAILED, text);
	free(text);
}

int
cr_user_str_eq(char **actual, char **expected)
{
	return strcmp(*actual, *expected) == 0;
}

/* The lines of the text, each in quotes. */
char *
cr_user_str_tostr(char **value)
{
	const char *from = *value;
	char *text = NULL;
	size_t bytes = 0, n;
	FILE *to = open_memstream(&text, &bytes);

	if (to == NULL)
		abort();
	for (;; from += n + 1) {
		n = strcspn(from, "\n");
		fprintf(to, "\"%.*s%s\"", (int)n, from, from[n] == '\n' ? "\\n" : "");
		if (from[n] == '\0' || from[n + 1] == '\0')
			break;
		putc('\n', to);
	}
	fclose(to);
	return text;
}
