# Stands in for /lib/functions/network.sh of OpenWrt: `wan` is up over a device, others are down.
# shellcheck shell=dash

network_get_device() {
	[ "$2" = wan ] || return 1
	eval "$1=pppoe-wan"
}
