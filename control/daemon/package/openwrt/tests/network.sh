# Stands in for /lib/functions/network.sh of OpenWrt: `wan` is up over a device, others if the file
# /tmp/up.NAME has theirs.
# shellcheck shell=dash disable=SC2034

network_get_device() {
	local found=pppoe-wan
	[ "$2" = wan ] || found=$(cat "/tmp/up.$2" 2>/dev/null) || return 1
	eval "$1=\$found"
}
