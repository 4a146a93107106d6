# Stands in for /lib/netifd/netifd-proto.sh: prints calls of the protocol handler. Options of the
# interface are words such as `tunnel=rec0` instead of JSON.
# shellcheck shell=dash disable=SC2034

for call in config_add_string config_add_defaults init_update add_ipv4_address add_ipv6_address \
	add_ipv4_route add_ipv6_route add_host_dependency send_update notify_error block_restart \
	setup_failed; do
	eval "proto_$call() { echo proto_$call \"\$@\"; }"
done

json_get_vars() {
	local word name
	for name in "$@"; do
		unset "$name"
	done
	for word in $data; do
		eval "${word%%=*}=\${word#*=}"
	done
}

init_proto() { action=$2 interface=$3 data=$4; }

add_protocol() {
	case $action in
	dump) "proto_$1_init_config" ;;
	*) "proto_$1_$action" "$interface" ;;
	esac
}
