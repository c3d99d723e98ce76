#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
# Command lines of karst-sim that must be refused with status 2 and words that help.
sim=$1
failed=0

refused() {
	want=$1
	shift
	out=$("$sim" "$@" 2>&1)
	status=$?
	if [ $status -ne 2 ]; then
		echo "karst-sim $*: status $status instead of 2"
		failed=1
	fi
	case $out in
	*"$want"*) ;;
	*)
		echo "karst-sim $*: does not say \"$want\": $out"
		failed=1
		;;
	esac
}

refused 'is not of the form A..B' --seeds 5
refused 'is not a number' --seeds 5..x7
refused 'the first must not be above the last' --seeds 9..3
refused 'is not a number' --seed abc
refused 'is not a number' --seed 12z
refused 'is larger than 2^64 - 1' --seed 99999999999999999999999
refused 'is not in 1..64' --jobs 0
refused 'is not in 0..256' --last 1000
refused 'is none of lossless' --profile gentle
refused 'No such file' --seeds-file /nonexistent/seeds
refused 'no arguments are taken' 17
refused 'Try karst-sim --help' --frobnicate

"$sim" --help | grep -q -- --seeds || failed=1
"$sim" --version | grep -q '^karst-sim ' || failed=1
"$sim" --json --seed 1 | python3 -c 'import json, sys; json.load(sys.stdin)' || failed=1
# The same seed is the same schedule.
a=$("$sim" --seed 7 -v 2>&1 | grep -v schedules)
b=$("$sim" --seed 7 -v 2>&1 | grep -v schedules)
if [ "$a" != "$b" ]; then
	echo "seed 7 is not always the same schedule"
	failed=1
fi
exit $failed
