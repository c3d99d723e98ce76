#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
# Command lines of karst-fabric that must be refused with status 2 and words that help; runs that
# cannot come to their end; and that a run is decided by its command line.
fabric=$1
failed=0

# STATUS WORDS ARGUMENT...
refused() {
	want=$1 words=$2
	shift 2
	out=$("$fabric" "$@" 2>&1)
	status=$?
	if [ $status -ne "$want" ]; then
		echo "karst-fabric $*: status $status instead of $want"
		failed=1
	fi
	case $out in
	*"$words"*) ;;
	*)
		echo "karst-fabric $*: does not say \"$words\": $out"
		failed=1
		;;
	esac
}

refused 2 "--hosts '1': a number from 2 to 4096 is allowed" --hosts 1
refused 2 "--hosts '-1'" --hosts -1
refused 2 "--hosts '99999999999999999999'" --hosts 99999999999999999999
refused 2 '--hosts 2: 3 to 4096 are allowed with --workload two' --workload two --hosts 2
refused 2 'allowed: star dumbbell clos' --topology ring
refused 2 'allowed: one two permutation incast ring tree websearch fb_hadoop alistorage' --workload all
refused 2 "--speed '0': a speed from 1M" --speed 0
refused 2 "--speed 'nan'" --speed nan
refused 2 "--speed '0x10'" --speed 0x10
refused 2 "--delay '1': a time up to 1s with its unit" --delay 1
refused 2 "--delay '2s'" --delay 2s
refused 2 "--buffer '0'" --buffer 0
refused 2 '--buffer 100: a frame has 4224 bytes' --buffer 100
refused 2 "--mtu '1000': a power of two, 256 to 4096, is allowed" --mtu 1000
refused 2 "--depth '3': a power of two" --depth 3
refused 2 "--load '0'" --workload websearch --load 0
refused 2 "--load '1.01'" --workload websearch --load 1.01
refused 2 "--pmax '1e400'" --pmax 1e400
refused 2 '--kmax 5: not less than --kmin, 6' --kmin 6 --kmax 5
refused 2 '--leaves and --spines go with --topology clos only' --leaves 4
refused 2 '--hosts 10: not a multiple of --leaves 4' --topology clos --hosts 10 --leaves 4
refused 2 '--fan-in goes with --workload incast and with distributions only' --fan-in 3
refused 2 '--fan-in 16: less than --hosts 16' --workload websearch --fan-in 16
refused 2 'go with distributions and --fan-in only' --workload websearch --incast-load 0.1
refused 2 'go with distributions and --fan-in only' --workload incast --incast-size 1
refused 2 "--incast-load '0'" --workload websearch --fan-in 3 --incast-load 0
refused 2 "--incast-size '0'" --workload websearch --fan-in 3 --incast-size 0
refused 2 'queue pairs, not 12000' --workload incast --fan-in 4 --connections 3000
refused 2 '--size: sizes are those of websearch' --workload websearch --size 1
refused 2 '--warmup: shorter than --duration' --duration 1ms --warmup 1ms
refused 2 '--stagger: shorter than --duration' --duration 1ms --stagger 1ms
refused 2 '--limit: not shorter than --duration' --duration 2ms --limit 1ms
refused 2 "allowed: gbn sr offer" --recovery irn
refused 2 'allowed: before timed' --connect later
refused 2 '--connect timed goes not with --workload tree' --connect timed --workload tree
refused 2 '--spray goes with --recovery sr only' --recovery offer --spray 2
refused 2 "--lose-mad '0'" --lose-mad 0
refused 1 '3 connections were not established' --loss 1 --connections 3
refused 2 'allowed: adapter paper' --preset mine
refused 2 'allowed: write read' --op send
refused 2 'who is read from hears nothing of it' --op read --workload ring
refused 2 'allowed: min_time_between_cnps cnp_scope clamp_tgt_rate' --set rate=1
refused 2 'NAME=VALUE' --set rpg_ai_rate
refused 2 "--set rpg_gd '9': a number from 10 to 15 is allowed" --set rpg_gd=9
refused 2 'rpg_byte_reset 5: 0, or 1024 and more' --cc dcqcn --set rpg_byte_reset=5
refused 2 'only options are allowed' now
refused 2 'needs a value' --hosts
refused 2 "Try 'karst-fabric --help'" --frobnicate
refused 1 'with PFC switch needs at least' --pfc --buffer 10000
refused 1 'out of memory: more than --memory' --memory 1M --workload ring --hosts 4000

"$fabric" --help | grep -q -- --topology || failed=1
"$fabric" --version | grep -q '^karst-fabric ' || failed=1
"$fabric" --quiet --size 1M >/dev/full 2>/dev/null
if [ $? -ne 1 ]; then
	echo "a full disk is no failure"
	failed=1
fi
run() {
	"$fabric" --quiet --topology clos --hosts 8 --workload fb_hadoop --duration 200us --cc dcqcn \
		--loss 0.001 "$@" 2>&1
}
run --json | python3 -c 'import json, sys
r = json.load(sys.stdin)
assert r["flows"] == len(r["flow"]) == r["done"] > 0, r["flows"]
assert r["slowdown"][-1]["p50"] >= 1' || failed=1
if [ "$(run --json)" != "$(run --json)" ] || [ "$(run)" != "$(run)" ]; then
	echo "a seed is not always the same run"
	failed=1
fi
if [ "$(run --seed 1)" = "$(run --seed 2)" ]; then
	echo "the seed makes no difference"
	failed=1
fi
exit $failed
