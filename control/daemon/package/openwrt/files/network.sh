# Renders /etc/config/recoded as the network file of this box. Sourced, after /lib/functions.sh, by
# /etc/init.d/recoded. A value that the file cannot have is refused in the log, by its section and
# option; the daemon's parser then reads the whole file.
# shellcheck shell=dash disable=SC2317,SC2154

RECODED_KEY=/etc/recoded/private.key
RECODED_RENDERED=/var/etc/recoded.toml
# Lost at each boot, as devices may have other names then.
RECODED_STATE=/var/run/recoded
recoded_faults=0

recoded_log() { logger -s -t recoded -p "daemon.$1" "$2"; }

recoded_fault() {
	recoded_faults=$((recoded_faults + 1))
	recoded_log err "/etc/config/recoded: $1"
}

# Callbacks of config_load: sections and options that are not known.
recoded_known() {
	case "$recoded_type:$1" in
	recoded:enabled | recoded:box | recoded:file) ;;
	box:name | box:at | box:uplinks | box:key | box:tunnel | box:routes) ;;
	path:via | path:mode | path:latency) ;;
	*) recoded_fault "section $recoded_section: option $1 is not known. fix: remove it, or \
correct its name" ;;
	esac
}

recoded_load() {
	recoded_type='' recoded_section=''
	config_cb() {
		recoded_type=$1 recoded_section=$2
		case "$1" in
		'' | recoded | box | path) ;;
		*) recoded_fault "section $2: its type $1 is not known. fix: recoded, box or path" ;;
		esac
	}
	option_cb() { recoded_known "$1"; }
	list_cb() { recoded_known "$1"; }
	config_load recoded
	reset_cb
}

# recoded_add SECTION OPTION VALUE: appends it to `values`, as a string of TOML.
recoded_add() {
	case "$3" in
	'' | *[!A-Za-z0-9._:/+=\ -]*)
		recoded_fault "section $1: $2 has the value '$3'. fix: letters, \
digits, spaces and ._:/+=- only"
		return
		;;
	esac
	values="$values${values:+, }\"$3\""
	count=$((count + 1))
}

recoded_each() { recoded_add "$2" "$3" "$1"; }

# recoded_values SECTION OPTION: fills `values` and `count`, of a list or of a single option.
recoded_values() {
	local length single
	values='' count=0
	config_get length "$1" "$2_LENGTH" 0
	if [ "$length" -gt 0 ]; then
		config_list_foreach "$1" "$2" recoded_each "$1" "$2"
	else
		config_get single "$1" "$2"
		[ -z "$single" ] || recoded_add "$1" "$2" "$single"
	fi
}

# recoded_entry SECTION OPTION [list]: appends `option = value` to `line`, if there is a value.
recoded_entry() {
	local values count
	recoded_values "$1" "$2"
	[ "$count" -gt 0 ] || return 0
	[ "$count" -eq 1 ] && [ -z "$3" ] || values="[$values]"
	line="$line${line:+, }$2 = $values"
}

# recoded_uplink NAME SECTION: an interface of netifd has an @ in front, and a device while it is
# up. While it is down, the link waits for the last device, so that it stays the same link. Before
# the first one, it waits for a device of the interface's name. The interface's trigger renders it
# again.
recoded_uplink() {
	local device='' last=$RECODED_STATE/uplink.${1#@}
	case "$1" in
	@ | @*[!A-Za-z0-9._-]*)
		recoded_fault "section $2: uplink '$1'. fix: @ and the name of an interface"
		return
		;;
	@*)
		if network_get_device device "${1#@}"; then
			[ "$device" = "$(cat "$last" 2>/dev/null)" ] || echo "$device" >"$last"
		else
			recoded_log notice "uplink ${1#@} is down: its link waits"
			device=$(cat "$last" 2>/dev/null)
			device=${device:-${1#@}}
		fi
		;;
	*) device=$1 ;;
	esac
	recoded_add "$2" uplinks "$device"
}

recoded_uplinks() {
	local values='' count=0 uplinks uplink
	config_get uplinks "$1" uplinks
	for uplink in $uplinks; do
		recoded_uplink "$uplink" "$1"
	done
	[ "$count" -eq 0 ] || line="$line${line:+, }uplinks = [$values]"
}

recoded_box() {
	local line='' name key
	config_get name "$1" name "$1"
	case "$name" in
	'' | -* | *[!A-Za-z0-9_-]*)
		recoded_fault "section $1: name '$name'. fix: letters, digits, - and _"
		return
		;;
	esac
	config_get key "$1" key
	recoded_entry "$1" at
	recoded_uplinks "$1"
	if [ -z "$key" ] && [ "$name" = "$recoded_self" ]; then
		key=$(recodectl pubkey <"$RECODED_KEY") && line="$line${line:+, }key = \"$key\""
	else
		recoded_entry "$1" key
	fi
	recoded_entry "$1" tunnel
	recoded_entry "$1" routes list
	[ "$name" != "$recoded_self" ] || recoded_found=yes
	echo "$name = { $line }"
}

recoded_path() {
	local line=''
	echo
	echo '[[path]]'
	recoded_entry "$1" via list
	[ -z "$line" ] || echo "$line"
	line=''
	recoded_entry "$1" mode
	[ -z "$line" ] || echo "$line"
	line=''
	recoded_entry "$1" latency
	[ -z "$line" ] || echo "$line"
}

recoded_render() {
	recoded_found=''
	echo "# Rendered from /etc/config/recoded: changes here are lost."
	echo '[boxes]'
	config_foreach recoded_box box
	config_foreach recoded_path path
	if [ -z "$recoded_self" ]; then
		recoded_fault "section main: box is empty. fix: option box, with the name of this box"
	elif [ -z "$recoded_found" ]; then
		recoded_fault "section main: box '$recoded_self' has no section. fix: config box \
'$recoded_self'"
	fi
}

# The key of this box, made once.
recoded_make_key() {
	[ ! -s "$RECODED_KEY" ] || return 0
	if ! mkdir -p "${RECODED_KEY%/*}" ||
		! (umask 077 && recodectl genkey >"$RECODED_KEY.new" && sync) ||
		! mv "$RECODED_KEY.new" "$RECODED_KEY"; then
		rm -f "$RECODED_KEY.new"
		recoded_log err "$RECODED_KEY cannot be written. fix: free space in the flash (df)"
		return 1
	fi
	recoded_log notice "key of this box, for the others: $(recodectl pubkey <"$RECODED_KEY")"
}

# recoded_prepare: sets `recoded_file` to a file that the daemon accepts, or fails, with reasons in
# the log. The file of the running daemon is then unchanged.
recoded_prepare() {
	local told
	# The socket is in /run, which some versions lack: without it, it would be in flash.
	[ -e /run ] || ln -s /var/run /run
	mkdir -p "$RECODED_STATE"
	recoded_make_key || return 1
	recoded_faults=0
	recoded_load
	config_get recoded_file main file
	config_get recoded_self main box
	if [ -z "$recoded_file" ]; then
		recoded_file=$RECODED_RENDERED
		mkdir -p "${recoded_file%/*}"
		recoded_render >"$recoded_file.new"
	fi
	[ "$recoded_faults" -eq 0 ] || return 1
	local checked=$recoded_file
	[ "$recoded_file" != "$RECODED_RENDERED" ] || checked=$recoded_file.new
	if ! told=$(recoded --config "$checked" --check --offline 2>&1); then
		recoded_log err "$told"
		return 1
	fi
	[ "$checked" = "$recoded_file" ] || mv "$checked" "$recoded_file"
}
