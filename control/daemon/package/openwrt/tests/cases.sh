#!/bin/sh
# Runs in the root of `scripts/openwrt-test`, under busybox: UCI sections become network files that
# the daemon accepts; wrong ones are refused with words in the log; the tunnel of a running daemon
# becomes an interface.
# shellcheck shell=dash disable=SC2015

KEY=3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=
RENDERED=/var/etc/recoded.toml

die() { echo "openwrt: $*" >&2; cat /tmp/log /tmp/said >&2; exit 1; }

# service ACTION: its output, and its log.
service() {
	: >/tmp/log
	/bin/sh /etc/rc.common /etc/init.d/recoded "$1" >/tmp/said 2>&1
}

logged() { grep -qF -e "$1" /tmp/log || die "the log lacks: $1"; }

said() { grep -qxF -e "$1" /tmp/said || die "no call: $1"; }

# rendered TEXT: the file, but for its first line.
rendered() {
	printf '%s\n' "$1" >/tmp/expected
	sed 1d "$RENDERED" | diff /tmp/expected - >&2 || die "another file is expected"
}

main="config recoded 'main'
	option enabled '1'
	option box 'router'
"
server="config box 'server'
	option at 'vpn.example.net'
	option key '$KEY'
	list tunnel '10.99.0.1/24'
	list tunnel 'fd99::1/64'
"
router="config box 'router'
	list tunnel '10.99.0.2/24'
	list tunnel 'fd99::2/64'
"

# The first start makes the key, and says it.
mount -t tmpfs -o ro tmpfs /etc/recoded
printf '%s' "$main$server$router" >/etc/config/recoded
! service start || die "it starts without a key"
logged '/etc/recoded/private.key cannot be written. fix: free space in the flash (df)'
umount /etc/recoded

# As installed, it is not enabled.
cp /etc/config/recoded.installed /etc/config/recoded
service start || die "the file of the package is refused"
! grep -q open_instance /tmp/said || die "it runs before it is enabled"

# Laptop to server.
printf '%s' "$main$server$router	list routes '192.168.1.0/24'
" >/etc/config/recoded
service start || die "laptop to server is refused"
own=$(recodectl pubkey </etc/recoded/private.key)
logged "key of this box, for the others: $own"
rendered "[boxes]
server = { at = \"vpn.example.net\", key = \"$KEY\", tunnel = [\"10.99.0.1/24\", \"fd99::1/64\"] }
router = { key = \"$own\", tunnel = [\"10.99.0.2/24\", \"fd99::2/64\"], routes = [\"192.168.1.0/24\"] }"
said "procd_set_param command /usr/sbin/recoded --config $RENDERED"
said 'procd_add_reload_trigger recoded'

# Two uplinks, one of them up.
bonding="$main$(echo "$server" | sed 's/vpn.example.net/203.0.113.9/')
$router	list uplinks '@wan'
	list uplinks '@wwan'
config path
	list via 'router'
	list via 'server'
	option mode 'bond'
	option latency 'low'
"
printf '%s' "$bonding" >/etc/config/recoded
service start || die "bonding is refused"
logged 'uplink wwan is down: its link waits'
rendered "[boxes]
server = { at = \"203.0.113.9\", key = \"$KEY\", tunnel = [\"10.99.0.1/24\", \"fd99::1/64\"] }
router = { uplinks = [\"pppoe-wan\", \"wwan\"], key = \"$own\", tunnel = [\"10.99.0.2/24\", \"fd99::2/64\"] }

[[path]]
via = [\"router\", \"server\"]
mode = \"bond\"
latency = \"low\""
said 'procd_add_reload_interface_trigger wan'
said 'procd_add_reload_interface_trigger wwan'
# Up, down, and up over another device: while it is down, the link keeps its device.
uplinks() {
	service start || die "bonding is refused"
	grep -qF "uplinks = [\"pppoe-wan\", \"$1\"]" "$RENDERED" || die "uplink $1 is expected"
}
echo wwan0 >/tmp/up.wwan
uplinks wwan0
! grep -q 'is down' /tmp/log || die "an uplink that is up is reported"
rm /tmp/up.wwan
uplinks wwan0
logged 'uplink wwan is down: its link waits'
echo wwan1 >/tmp/up.wwan
uplinks wwan1
rm /tmp/up.wwan

# refused CONFIGURATION WORDS: not started, the words are in the log, and the file stays.
refused() {
	cp "$RENDERED" /tmp/before
	printf '%s' "$1" >/etc/config/recoded
	! service start || die "it is not refused: $2"
	logged "$2"
	cmp -s "$RENDERED" /tmp/before || die "the file was replaced: $2"
}
refused "$main$server$router	option route '10.0.0.0/8'
" 'section router: option route is not known'
refused "$main$server$router
config peer 'x'
	option at '192.0.2.1'
" 'section x: its type peer is not known'
refused "$main$server$router	list routes '10.0.0.0/8\" ] }'
" '}'\''. fix: letters, digits, spaces and ._:/+=- only'
refused "$main$server$router	list uplinks '@../x'
" "section router: uplink '@../x'"
refused "$main$server" "box 'router' has no section"
main_of_none=$(printf '%s' "$main" | sed '/option box/d')
refused "$main_of_none
$server$router" 'section main: box is empty'
refused "$main$server$router	list routes '10.0.0.1/8'
" '10.0.0.1/8'
refused "$bonding	option code 'bats'
" 'option code is not known'
printf '%s' "$bonding" | sed "s/'bond'/'both'/" >/tmp/wrong
refused "$(cat /tmp/wrong)" 'both'
# What runs continues.
touch /tmp/running
! service reload || die "a wrong file is loaded"
rm /tmp/running

# The handler of the protocol, of a daemon that runs.
handler() {
	: >/tmp/log
	(cd /lib/netifd/proto && RECODED_WAIT=$wait /bin/sh ./recoded.sh recoded "$@") >/tmp/said 2>&1
}
printf '%s' "$bonding" >/etc/config/recoded
service start || die "bonding is refused"
wait=1
handler dump '' '' || die "no dump"
said 'proto_config_add_string tunnel'
! handler setup vpn 'tunnel=rec0/../x' || die "a wrong name of a tunnel is accepted"
logged "option tunnel 'rec0/../x' is no name of a tunnel"
said 'proto_block_restart vpn'
! handler setup vpn '' || die "a tunnel that is missing is accepted"
logged 'there is no tunnel rec0'
said 'proto_setup_failed vpn'
recoded --config "$RENDERED" >/tmp/daemon 2>&1 &
daemon=$!
wait=30
handler setup vpn 'defaultroute=1 metric=50' || { cat /tmp/daemon; die "the interface does not come up"; }
said 'proto_init_update rec0 1 1'
said 'proto_add_ipv4_address 10.99.0.2 24'
said 'proto_add_ipv6_address fd99::2 64'
said 'proto_add_ipv4_route 0.0.0.0 0   50'
said 'proto_add_ipv6_route :: 0  50'
said 'proto_add_host_dependency vpn 203.0.113.9 wan'
said 'proto_add_host_dependency vpn 203.0.113.9 wwan'
said 'proto_send_update vpn'
handler teardown vpn '' || die "teardown fails"
recodectl show links >/tmp/said 2>&1 || die "recodectl does not reach the daemon"
[ -S /var/run/recoded/recoded.sock ] || die "the socket is in flash"
# A change of the network is loaded by the daemon that runs, another file by one that procd starts.
touch /tmp/running
printf '%s' "$bonding" | grep -v latency >/etc/config/recoded
service reload || die "a path without latency is refused"
said "procd_set_param command /usr/sbin/recoded --config $RENDERED"
said 'procd_add_reload_interface_trigger wwan'
grep -q '^configuration .* applied' /tmp/said || die "the daemon does not reload"
cp "$RENDERED" /etc/recoded/own.toml
printf '%s' "$main	option file '/etc/recoded/own.toml'
$server$router" >/etc/config/recoded
service reload || die "a file is refused"
said 'procd_set_param command /usr/sbin/recoded --config /etc/recoded/own.toml'
! grep -q '^configuration ' /tmp/said || die "the daemon reloads its previous file"
# Its neighbours are not known to the handler.
handler setup vpn '' || die "the interface does not come up"
! grep -q host_dependency /tmp/said || die "routes to neighbours of other sections"
rm /tmp/running
# A laptop has no uplinks of its own, and a server with a name.
printf '%s' "$main$server$router" >/etc/config/recoded
handler setup vpn '' || die "the interface does not come up"
said 'proto_add_host_dependency vpn 192.0.2.7 '
# One option is a list of one.
printf '%s' "$main$server$router	option uplinks '@wan'
" >/etc/config/recoded
service start || die "one uplink is refused"
grep -q 'uplinks = \["pppoe-wan"\]' "$RENDERED" || die "the uplink is missing"
printf '%s' "$main$server$router" >/etc/config/recoded
handler setup vpn '' || die "the interface does not come up"
said 'proto_add_host_dependency vpn 192.0.2.7 '
! grep -q 'route 0.0.0.0' /tmp/said || die "a default route that is not wanted"
# Calls of the LuCI pages, as rpcd makes them. Others are refused.
call() {
	printf '%s' "$2" >/tmp/given
	/usr/libexec/rpcd/luci.recoded call "$1" </tmp/given >/tmp/said || die "call $1 fails"
}
[ "$(/usr/libexec/rpcd/luci.recoded list)" = '{ "status": {}, "join": { "token": "" } }' ] ||
	die "another list of calls"
call status '{}'
grep -q '"neighbours"' /tmp/said || die "a page without state"
call other '{}'
grep -q 'there is no such call' /tmp/said || die "an unknown call"

kill "$daemon"
wait "$daemon" || die "the daemon ended with $?: $(cat /tmp/daemon)"
call status '{}'
grep -q '"error"' /tmp/said && grep -q 'no daemon' /tmp/said || die "no daemon, and no words"

# Joining by a token, of a hub that runs here. The key of the router stays.
# shellcheck disable=SC2016
for wrong in '' '{}' '{"token":""}' '{"token":"a b"}' '{"token":"$(touch /tmp/run)"}' \
	"{\"token\":\"\";touch /tmp/run;\"\"}" "$(head -c 100000 /dev/urandom | tr -dc 'a-z"')"; do
	call join "$wrong"
	grep -q '"message":"this is no token' /tmp/said || die "a wrong token: $(cat /tmp/said)"
done
call join '{"ubus_rpc_session":"x","token":"recoded1_AAAA"}'
grep -q '"error"' /tmp/said || die "a token that is cut off is accepted"
[ ! -e /tmp/run ] || die "a token was run"
rm -f /tmp/uci.said
hub=/tmp/hub/recoded.toml
recodectl init --name hub --address 127.0.0.1 --config $hub --key /tmp/hub/key >/dev/null ||
	die "there is no hub"
: >/tmp/invited
recodectl --json invite router --config $hub --port 9999 >/tmp/invited 2>/tmp/inviting &
hub=$!
while ! grep -q recoded1_ /tmp/invited && kill -0 $hub; do sleep 1; done
token=$(sed -n 's/.*\(recoded1_[A-Za-z0-9_-]*\).*/\1/p' /tmp/invited | head -n 1)
call join "{\"ubus_rpc_session\":\"x\",\"token\":\"$token\"}"
grep -q '"hub"' /tmp/said || die "the router has not joined: $(cat /tmp/inviting)"
wait $hub || die "the hub has not added it: $(cat /tmp/inviting)"
grep -q "$own" /tmp/hub/recoded.toml || die "the hub has another key"
service start || die "the file of the invitation is refused"
said 'procd_set_param command /usr/sbin/recoded --config /etc/recoded/recoded.toml'
call join "{\"token\":\"$token\"}"
grep -q 'the option file is set' /tmp/said || die "it joins twice"
echo "openwrt: two UCI networks, $(grep -c '^refused ' "$0") refusals, an interface of netifd's, and a token of LuCI's"
