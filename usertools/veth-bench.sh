#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
# Two daemons in two network namespaces of its own, joined by a veth pair, or by taps at a bridge, and
# karst-perf between them; then what was lost inside the machine, and what was sent again.  As root.
usage() {
	cat <<EOF
usage: veth-bench.sh [OPTION...] [-- KARST-PERF-OPTION...]
  --build DIR     where karstd and karst-perf were built [build]
  --driver NAME   of the ports, as in karst.conf [auto]
  --device NAME   instead of the veth's end, which is called wire: tap:NAME, whose two are joined by
                  a bridge, or such as net_kport0,iface=wire,trains=0
  --idle MODE     of the daemons' lcores [sleep]
  --mtu N         of the veth [9000]
  --lcores LIST   CPUs of each daemon's lcores [one each: 0 and 1]
  --beside        each program on the CPU of its daemon's lcore [wherever the kernel puts it]
  --engine LINE   of [engine] of both daemons, such as 'congestion = swift'; may be repeated
  --impair FILE   the second daemon's port is impaired by these rules (karst-impair(5))
KARST-PERF-OPTIONs: [--op write,read,send --compare tcp --no-baselines]
EOF
	exit "$1"
}

top=$(cd "$(dirname "$0")/.." && pwd)
build=$top/build driver=auto device=wire idle=sleep mtu=9000 lcores='' beside='' impair=''
engine=()
while [ $# -gt 0 ]; do
	case $1 in
	--beside)
		beside=1
		shift
		continue
		;;
	--build) build=$2 ;;
	--driver) driver=$2 ;;
	--device) device=$2 ;;
	--idle) idle=$2 ;;
	--mtu) mtu=$2 ;;
	--lcores) lcores=$2 ;;
	--engine) engine+=("$2") ;;
	--impair) impair=$(realpath -e "$2") || exit 2 ;;
	--help | -h) usage 0 ;;
	--)
		shift
		break
		;;
	*) usage 2 >&2 ;;
	esac
	shift 2 || usage 2 >&2
done
[ $# -gt 0 ] || set -- --op write,read,send --compare tcp --no-baselines

work=$(mktemp -d) || exit 1
ns=("veth$$a" "veth$$b")
switch=veth$$s
pids=()

# shellcheck disable=SC2317 # by the trap
clean_up() {
	[ ${#pids[@]} -gt 0 ] && kill "${pids[@]}" 2>/dev/null
	wait
	for n in "${ns[@]}" "$switch"; do
		ip netns del "$n" 2>/dev/null
	done
	rm -rf "$work"
}
trap clean_up EXIT

for n in "${ns[@]}"; do
	ip netns add "$n" && ip -n "$n" link set lo up || exit 1
done
ip -n "${ns[0]}" link add wire type veth peer name wire netns "${ns[1]}" || exit 1
for i in 0 1; do
	n=${ns[$i]}
	ip -n "$n" address add "192.0.2.$((i + 1))/24" dev wire
	ip -n "$n" link set wire mtu "$mtu" up
	cat >"$work/$i.conf" <<-EOF
		[engine]
		name = veth$i$$
		user = root
		idle = $idle
		lcores = ${lcores:-$i}
		$(printf '%s\n' "${engine[@]}")
		[socket]
		path = $work/$i.sock
		[port wire]
		device = $device
	EOF
	if [ "$device" = wire ]; then
		echo "driver = $driver"
	else
		echo "addresses = 192.0.2.$((i + 1))/24"
	fi >>"$work/$i.conf"
	[ "$impair" ] && [ "$i" = 1 ] && echo "impair = $impair" >>"$work/$i.conf"
	ip netns exec "$n" "$build/app/karstd/karstd" --config "$work/$i.conf" 2>"$work/$i.log" &
	pids+=($!)
done
for i in 0 1; do
	for _ in {1..300}; do
		[ -S "$work/$i.sock" ] && break
		sleep 0.1
	done
	[ -S "$work/$i.sock" ] || {
		cat "$work/$i.log" >&2
		exit 1
	}
done
grep -h 'by driver' "$work/0.log"
case $device in
tap:* | net_kport*,tap=*)
	tap=${device#tap:} tap=${tap#*tap=} tap=${tap%%,*}
	ip netns add "$switch" && ip -n "$switch" link add bridge type bridge || exit 1
	ip -n "$switch" link set bridge up
	for i in 0 1; do
		ip -n "${ns[$i]}" link set "$tap" netns "$switch" name "$tap$i"
		ip -n "$switch" link set "$tap$i" master bridge up
	done
	# the programs' own TCP, and the comparison with it, go by the veth
	;;
*iface=wire*)
	# as karstd does by itself for device = wire: the kernel answers no RoCE
	for n in "${ns[@]}"; do
		ip netns exec "$n" python3 -c 'import signal, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
s.bind(("", 4791))
signal.pause()' &
		pids+=($!)
	done
	;;
esac
# The words before a program that belongs to the lcore on CPU $1.  Not a function that runs it: what
# is to be ended is the program and not a shell around it.
pin() {
	[ "$beside" ] && echo "taskset -c $1"
}

# What the daemons' ports and queue pairs count of what went wrong.
losses() {
	for i in 0 1; do
		"$top/usertools/karst-exporter" --once --engine "veth$i$$" 2>/dev/null
	done | awk '
		/^karst_port_(rx_missed|rx_errors|rx_no_mbufs|tx_errors)_total|^karst_lcore_tx_dropped_total/ { lost += $NF }
		/^karst_drops_total/ && $NF > 0 {
			dropped += $NF
			match($0, /reason="[^"]*/)
			why = why sprintf(", %d for %s", $NF, substr($0, RSTART + 8, RLENGTH - 8))
		}
		/^karst_[a-z_]*retransmits_total/ { again += $NF }
		/^karst_/ { any = 1 }
		END {
			if (!any) { print "losses: not known"; exit }
			printf "losses: %d frames inside the machine, %d dropped by the engines%s; %d packets sent again\n", lost, dropped, why, again
		}'
}

# shellcheck disable=SC2046 # no word, or three
$(pin 1) ip netns exec "${ns[1]}" "$build/app/karst-perf/karst-perf" --connect "$work/1.sock" --server \
	>"$work/server.log" 2>&1 &
pids+=($!)
for _ in {1..300}; do
	grep -q 'TCP port' "$work/server.log" && break
	sleep 0.1
done
# shellcheck disable=SC2046
$(pin 0) ip netns exec "${ns[0]}" "$build/app/karst-perf/karst-perf" --connect "$work/0.sock" \
	--peer 192.0.2.2 "$@"
status=$?
losses
exit $status
