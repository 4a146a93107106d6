#!/bin/sh
# Calls of the LuCI pages, as a plugin of rpcd: `status` is the JSON of `recodectl show`, `join`
# takes a token and makes its network the one of this router. A token is a secret: it travels on
# standard input, and is in no list of processes.
# shellcheck shell=dash

# Of the arguments of `join`: a token has at most some 1500.
INPUT_BYTES_MAX=4096
JOINED=/etc/recoded/recoded.toml

# refuse TEXT: as recodectl reports errors. TEXT has no quotes.
refuse() { printf '{"error":{"kind":"luci","message":"%s"}}\n' "$1"; }

# report JSON: of recodectl, which also prints its errors so.
report() {
	[ -n "$1" ] || refuse 'recodectl does not run. fix: install the package recoded again'
	[ -z "$1" ] || printf '%s\n' "$1"
}

join() {
	local token told
	# No character of a token needs an escape in JSON.
	token=$(head -c "$INPUT_BYTES_MAX" |
		sed -n 's/.*"token"[[:space:]]*:[[:space:]]*"\([A-Za-z0-9_-]*\)".*/\1/p')
	if [ -z "$token" ]; then
		refuse 'this is no token. fix: copy the word that recodectl invite printed at the hub'
		return
	fi
	if [ -n "$(uci -q get recoded.main.file)" ]; then
		refuse 'the option file is set: this router has a network. fix: empty it on the page Network'
		return
	fi
	if told=$(printf '%s\n' "$token" | recodectl --json join - 2>/dev/null) && ! use_file; then
		refuse 'joined, but the service does not start. fix: logread -e recoded'
		return
	fi
	report "$told"
}

# The service uses the file that recodectl has written.
use_file() {
	uci set recoded.main=recoded && uci set "recoded.main.file=$JOINED" &&
		uci set recoded.main.enabled=1 && uci commit recoded &&
		/etc/init.d/recoded enable && /etc/init.d/recoded reload
} >/dev/null 2>&1

case "$1 $2" in
'list '*) echo '{ "status": {}, "join": { "token": "" } }' ;;
'call status') report "$(recodectl --json show 2>/dev/null)" ;;
'call join') join ;;
*) refuse 'there is no such call' ;;
esac
