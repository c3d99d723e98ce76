#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
# differs.sh PROGRAM: an assertion that fails shows the lines of both values (TAP).

said=$("$1" 2>&1)
status=$?
echo 1..2
if [ $status -eq 1 ]; then
	echo "ok 1 - an assertion that fails"
else
	echo "not ok 1 - an assertion that fails"
	echo "# exit status $status"
fi
if echo "$said" | grep -q -- '-"two' && echo "$said" | grep -q -- '+"three'; then
	echo "ok 2 - shows the lines that differ"
else
	echo "not ok 2 - shows the lines that differ"
	echo "$said" | sed 's/^/# /'
fi
