# Stands in for /lib/functions.sh of OpenWrt in `scripts/openwrt-test`: the documented functions to
# read UCI. Files of /etc/config are shell, as OpenWrt's own `uci export` prints them.
# shellcheck shell=dash

reset_cb() {
	config_cb() { :; }
	option_cb() { :; }
	list_cb() { :; }
}
reset_cb

store() { eval "CONFIG_$1_$2=\$3"; }

config() {
	sections=$((${sections:-0} + 1))
	current=${2:-cfg0$sections}
	CONFIG_SECTIONS="$CONFIG_SECTIONS $current"
	store "$current" TYPE "$1"
	config_cb "$1" "$current"
}

option() {
	store "$current" "$1" "$2"
	option_cb "$1" "$2"
}

list() {
	local length all
	config_get length "$current" "$1_LENGTH" 0
	config_get all "$current" "$1"
	length=$((length + 1))
	store "$current" "$1_ITEM$length" "$2"
	store "$current" "$1_LENGTH" "$length"
	store "$current" "$1" "$all${all:+ }$2"
	list_cb "$1" "$2"
}

package() { :; }

config_load() { uci_load "$1"; }

config_get() {
	case $# in
	2) eval "echo \"\$CONFIG_$1_$2\"" ;;
	*) eval "$1=\${CONFIG_$2_$3:-\$4}" ;;
	esac
}

config_get_bool() {
	local given
	config_get given "$2" "$3" "$4"
	case $given in
	1 | on | true | yes | enabled) eval "$1=1" ;;
	*) eval "$1=0" ;;
	esac
}

config_foreach() {
	local function=$1 type=$2 section kind
	shift 2
	for section in $CONFIG_SECTIONS; do
		config_get kind "$section" TYPE
		[ "$kind" != "$type" ] || "$function" "$section" "$@"
	done
}

config_list_foreach() {
	local section=$1 option=$2 function=$3 number=1 length val
	shift 3
	config_get length "$section" "${option}_LENGTH" 0
	while [ "$number" -le "$length" ]; do
		config_get val "$section" "${option}_ITEM$number"
		"$function" "$val" "$@"
		number=$((number + 1))
	done
}
