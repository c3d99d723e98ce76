#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
# Two daemons in two network namespaces of its own, joined by a veth pair, or by taps at a bridge, and
# karst-perf between them.  As root.
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
KARST-PERF-OPTIONs: [--op write,read,send --compare tcp --no-baselines]
EOF
	exit "$1"
}

top=$(cd "$(dirname "$0")/.." && pwd)
build=$top/build driver=auto device=wire idle=sleep mtu=9000 lcores=
while [ $# -gt 0 ]; do
	case $1 in
	--build) build=$2 ;;
	--driver) driver=$2 ;;
	--device) device=$2 ;;
	--idle) idle=$2 ;;
	--mtu) mtu=$2 ;;
	--lcores) lcores=$2 ;;
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
ip netns exec "${ns[1]}" "$build/app/karst-perf/karst-perf" --connect "$work/1.sock" --server \
	>"$work/server.log" 2>&1 &
pids+=($!)
for _ in {1..300}; do
	grep -q 'TCP port' "$work/server.log" && break
	sleep 0.1
done
ip netns exec "${ns[0]}" "$build/app/karst-perf/karst-perf" --connect "$work/0.sock" \
	--peer 192.0.2.2 "$@"
