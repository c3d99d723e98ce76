#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
# leaks.sh PROGRAM: a case that leaks fails, and one whose memory is pointed to from static memory
# does not (TAP).

export ASAN_OPTIONS="abort_on_error=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
echo 1..2
if "$1" --filter 'criterion/leaks_not' >/dev/null 2>&1; then
	echo "ok 1 - memory of which static memory knows"
else
	echo "not ok 1 - memory of which static memory knows"
fi
if "$1" --filter 'criterion/leaks' >/dev/null 2>&1; then
	echo "not ok 2 - memory of which nobody knows"
else
	echo "ok 2 - memory of which nobody knows"
fi
