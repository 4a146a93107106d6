-- Coded packets of Recoded, version 3, in Wireshark and tshark. Layouts: docs/protocol/packets.md.
--
--   tshark -X lua_script:recoded.lua -i eth0 -f 'udp port 9426'
--   cp recoded.lua ~/.local/lib/wireshark/plugins/
--
-- Whether packets end with a tag is known to the hop only, not to the packet: preference `tags`, or
-- -o recoded.tags:TRUE.

local recoded = Proto("recoded", "Recoded coded packet")

local TYPES = {
    [1] = "BATS", [2] = "RLNC generation", [4] = "feedback", [5] = "stream", [6] = "link report",
    [7] = "handshake", [8] = "announcement",
}
local FIELDS = { [0] = "GF(2)", [1] = "GF(4)", [2] = "GF(16)", [3] = "GF(256)" }
local PROFILES = { [0] = "baseline", [1] = "precoded", [2] = "cyclic-shift" }
local KINDS = {
    [1] = "sends", [2] = "expects", [128] = "unknown flow", [129] = "not expected",
    [130] = "not sent", [131] = "not there", [132] = "code not built in", [133] = "too large",
    [3] = "sizes", [134] = "symbols too long", [135] = "no memory",
}
local ITEMS = {
    [0] = "withdrawn", [1] = "hop report", [2] = "flow report", [3] = "NACK", [4] = "ranks",
    [5] = "block acknowledgement", [6] = "size report",
    [7] = "arrivals", [8] = "seal",
}

local HEADER_BYTES, TAG_BYTES, LINK_BYTES = 16, 13, 62
local VERSION = 3
local SYS, REPAIR, END, RECODED, INTERACTIVE, MENDED = 0x80, 0x40, 0x20, 0x10, 0x08, 0x04
local PATHS, OPEN_LOOP = 0x04, 0x10

-- Lua of older Wiresharks has no operators for bits.
local function has(flags, bit) return math.floor(flags / bit) % 2 == 1 end

local f = {}

-- Declares a field `recoded.NAME`.
local function field(name, kind, title, ...)
    local key = name:gsub("%.", "_")
    f[key] = ProtoField[kind]("recoded." .. name, title, ...)
end

field("version", "uint8", "Version", base.DEC, nil, 0xf0)
field("type", "uint8", "Type", base.DEC, TYPES, 0x0f)
field("flags", "uint8", "Flags", base.HEX)
field("flags.sys", "bool", "Source symbol", 8, nil, SYS)
field("flags.edge", "bool", "Between source and sink", 8, nil, SYS)
field("flags.repair", "bool", "Repair", 8, nil, REPAIR)
field("flags.end", "bool", "End", 8, nil, END)
field("flags.recoded", "bool", "Combined by a relay", 8, nil, RECODED)
field("flags.interactive", "bool", "Interactive", 8, nil, INTERACTIVE)
field("flags.mended", "bool", "Hops make up for losses", 8, nil, MENDED)
field("flags.paths", "bool", "Spread over several paths", 8, nil, PATHS)
field("flags.open_loop", "bool", "Open loop", 8, nil, OPEN_LOOP)
field("field", "uint8", "Field", base.DEC, FIELDS, 0x03)
field("epoch", "uint8", "Epoch")
field("shard", "uint8", "Shard")
field("flow", "uint32", "Flow")
field("link_sequence", "uint32", "Link sequence number")
field("hop_index", "uint8", "Hop index")
field("size", "uint16", "Size")
field("full_log2", "uint8", "Largest size (log2)")
field("planned", "uint16", "Planned packets")
field("generation", "uint32", "Generation or batch number")
field("block", "uint16", "Block number")
field("batch", "uint16", "Batch id")
field("block_full_log2", "uint8", "Largest K (log2)")
field("source_symbols", "uint16", "Source symbols (K)")
field("profile", "uint8", "Profile", base.DEC, PROFILES)
field("generator_bits", "uint8", "Bits of a generator element")
field("interleave", "uint8", "Interleaved batches")
field("symbol_index", "uint32", "Symbol index")
field("vector", "bytes", "Coding vector")
field("symbol", "bytes", "Symbol")
field("window_log2", "uint8", "Window (log2 of symbols)")
field("round_trips", "uint16", "Round trips of the hops travelled (1/4 ms)")
field("combinations", "uint16", "Combinations per symbol (1/256)")
field("number", "uint32", "Number")
field("after", "uint16", "After")
field("place", "uint16", "Place")
field("packet", "bytes", "IP packet")
field("first_place", "uint32", "First place")
field("count", "uint16", "Count")
field("key", "uint16", "Key")
field("sum", "bytes", "Sum")
field("from", "uint32", "From")
field("horizon", "uint32", "Horizon")
field("latest", "uint32", "Latest")
field("arrived", "uint32", "Arrived (us)")
field("held", "uint16", "Held (us)")
field("backlog", "uint16", "Backlog (16 us)")
field("received_bytes", "uint32", "Bytes received")
field("received_packets", "uint32", "Packets received")
field("beyond", "uint16", "Round trips beyond (1/4 ms)")
field("missing", "uint16", "Missing places")
field("missing_place", "uint16", "Missing place")
field("gap", "bytes", "Gap")
field("gap.first", "uint32", "First")
field("gap.count", "uint16", "Count")
field("node", "uint32", "Node", base.HEX)
field("report", "uint32", "Report number")
field("item", "uint8", "Item", base.DEC, ITEMS)
field("item.bytes", "uint16", "Value bytes")
field("item.hop", "uint8", "Hop index")
field("item.loss", "uint16", "Loss (1/65535)")
field("item.burst_mean", "uint16", "Mean burst (1/256 packets)")
field("item.newest", "uint32", "Newest unit")
field("item.complete", "uint32", "Complete")
field("item.failed", "uint32", "Failed")
field("item.unit", "uint32", "Unit")
field("item.missing", "uint16", "Missing degrees of freedom")
field("item.round", "uint8", "Round")
field("item.epoch", "uint8", "Epoch of the ranks")
field("item.rank_count", "uint32", "Units of this rank")
field("item.block", "uint16", "Block")
field("item.size", "uint16", "Largest UDP payload (bytes)")
field("item.first", "uint32", "First symbol")
field("item.came", "bytes", "One bit for each symbol that the sink has")
field("item.key_id", "uint8", "Key of the seal")
field("item.counter", "uint64", "Counter of the seal")
field("item.tag", "bytes", "Tag of the seal")
field("software", "uint8", "Version of the software (part)")
field("codes", "uint8", "Codes (bits by packet type)")
field("packet_bytes", "uint16", "Largest UDP payload of the link (bytes)")
field("instance", "uint16", "Instance")
field("clock", "uint64", "Clock (seconds since 1970)")
field("marks", "bytes", "Marks")
field("entry", "bytes", "Entry")
field("entry.flow", "uint32", "Flow")
field("entry.kind", "uint8", "Kind", base.DEC, KINDS)
field("entry.code", "uint8", "Code", base.DEC)
field("entry.value", "uint16", "Largest UDP payload (bytes)")
field("message", "bytes", "Message")
field("tag", "bytes", "Tag of the hop")
field("tag.key", "uint8", "Key id")
field("tag.counter", "uint32", "Counter (lower half)")
recoded.fields = f

local malformed = ProtoExpert.new(
    "recoded.malformed", "Malformed packet", expert.group.MALFORMED, expert.severity.ERROR)
recoded.experts = { malformed }

recoded.prefs.port = Pref.uint("UDP port", 9426, "Port of the nodes")
recoded.prefs.tags = Pref.bool("Packets end with a tag", false, "Neighbours have keys")

local ip_dissector = Dissector.get("ip")
local ip6_dissector = Dissector.get("ipv6")

-- What of the bytes is no symbol, message or gap, and the part of a row in the list of packets.
local bodies = {}

local function add(tree, list)
    for _, entry in ipairs(list) do
        tree:add(table.unpack(entry))
    end
end

-- The inner packet of a stream's symbol. Sealed ones begin with a zero, and may have a tag behind.
local function inner(range, pinfo, tree, root)
    tree:add(f.packet, range)
    local version = range(0, 1):bitfield(0, 4)
    if version == 4 and ip_dissector then
        ip_dissector:call(range:tvb(), pinfo, root)
    elseif version == 6 and ip6_dissector then
        ip6_dissector:call(range:tvb(), pinfo, root)
    end
end

local function coded(range, flags, is_batch, tree)
    local fixed = is_batch and 28 or 20
    local size = range(13, 1):uint() + 1
    local elements_bits = size * 2 ^ (flags % 4)
    local vector = has(flags, SYS) and 4 or math.ceil(elements_bits / 32) * 4
    if range:len() <= fixed + vector then return nil end
    add(tree, {
        { f.size, range(13, 1), size },
        { f.full_log2, range(14, 1), range(14, 1):bitfield(0, 4) },
        { f.planned, range(14, 2), range(14, 2):bitfield(4, 12) },
        { f.generation, range(16, 4) },
    })
    local row = string.format("%u", range(16, 4):uint())
    if is_batch then
        add(tree, {
            { f.block, range(20, 2) },
            { f.batch, range(22, 2) },
            { f.block_full_log2, range(24, 1), range(24, 1):bitfield(0, 4) },
            { f.source_symbols, range(24, 2), range(24, 2):bitfield(4, 12) + 1 },
            { f.profile, range(26, 1), range(26, 1):bitfield(0, 4) },
            { f.generator_bits, range(26, 1), range(26, 1):bitfield(4, 4) },
            { f.interleave, range(27, 1) },
        })
        row = string.format("block %u batch %u", range(20, 2):uint(), range(22, 2):uint())
    end
    if has(flags, SYS) then
        tree:add(f.symbol_index, range(fixed, 4))
        row = string.format("%s, symbol %u of %u", row, range(fixed, 4):uint(), size)
    else
        tree:add(f.vector, range(fixed, vector))
        row = string.format("%s, combination of %u", row, size)
    end
    tree:add(f.symbol, range(fixed + vector))
    return row
end

bodies[1] = function(range, flags, tree) return coded(range, flags, true, tree) end
bodies[2] = function(range, flags, tree) return coded(range, flags, false, tree) end

bodies[4] = function(range, _, tree)
    if range:len() < 24 then return nil end
    add(tree, { { f.node, range(16, 4) }, { f.report, range(20, 4) } })
    local at, names = 24, {}
    while at < range:len() do
        if at + 4 > range:len() then return nil end
        local kind, bytes = range(at, 1):uint(), range(at + 2, 2):uint()
        if at + 4 + bytes > range:len() then return nil end
        local item = tree:add(f.item, range(at, 1))
        item:set_len(4 + bytes)
        item:add(f.item_bytes, range(at + 2, 2))
        names[#names + 1] = ITEMS[kind] or "?"
        local value = bytes > 0 and range(at + 4, bytes) or nil
        if kind == 1 and bytes == 8 then
            add(item, {
                { f.item_hop, value(0, 1) }, { f.item_loss, value(2, 2) },
                { f.item_burst_mean, value(4, 2) },
            })
        elseif kind == 2 and bytes == 12 then
            add(item, {
                { f.item_newest, value(0, 4) }, { f.item_complete, value(4, 4) },
                { f.item_failed, value(8, 4) },
            })
        elseif kind == 3 and bytes == 8 then
            add(item, {
                { f.item_unit, value(0, 4) }, { f.item_missing, value(4, 2) },
                { f.item_round, value(6, 1) },
            })
        elseif kind == 4 and bytes >= 4 and bytes % 4 == 0 then
            item:add(f.item_epoch, value(0, 1))
            for offset = 4, bytes - 4, 4 do
                item:add(f.item_rank_count, value(offset, 4))
            end
        elseif kind == 5 and bytes == 4 then
            item:add(f.item_block, value(0, 2))
        elseif kind == 6 and bytes == 4 then
            add(item, { { f.item_hop, value(0, 1) }, { f.item_size, value(2, 2) } })
        elseif kind == 7 and bytes > 4 then
            add(item, { { f.item_first, value(0, 4) }, { f.item_came, value(4) } })
        elseif kind == 8 and bytes == 25 then
            add(item, {
                { f.item_key_id, value(0, 1) }, { f.item_counter, value(1, 8) },
                { f.item_tag, value(9, 16) },
            })
        end
        at = at + 4 + bytes
    end
    return table.concat(names, ", ")
end

bodies[5] = function(range, flags, tree, pinfo, root)
    tree:add(f.window_log2, range(13, 1))
    tree:add(has(flags, OPEN_LOOP) and f.combinations or f.round_trips, range(14, 2))
    if has(flags, END) and not has(flags, SYS) then return "keepalive" end
    if range:len() <= 24 then return nil end
    if not has(flags, SYS) then
        add(tree, {
            { f.first_place, range(16, 4) }, { f.count, range(20, 2) }, { f.key, range(22, 2) },
            { f.sum, range(24) },
        })
        return string.format(
            "combination of %u from place %u", range(20, 2):uint(), range(16, 4):uint())
    end
    add(tree, {
        { f.number, range(16, 4) }, { f.after, range(20, 2) }, { f.place, range(22, 2) },
    })
    inner(range(24), pinfo, tree, root)
    local again = has(flags, REPAIR) and ", again" or ""
    return string.format("symbol %u%s", range(16, 4):uint(), again)
end

bodies[6] = function(range, _, tree)
    local gaps = math.floor((range:len() - LINK_BYTES) / 4)
    if range:len() < LINK_BYTES or (range:len() - LINK_BYTES) % 4 ~= 0 or gaps > 64 then
        return nil
    end
    local missing = range(46, 2):uint()
    if missing > 7 then return nil end
    add(tree, {
        { f.from, range(16, 4) }, { f.horizon, range(20, 4) }, { f.latest, range(24, 4) },
        { f.arrived, range(28, 4) }, { f.held, range(32, 2) }, { f.backlog, range(34, 2) },
        { f.received_bytes, range(36, 4) }, { f.received_packets, range(40, 4) },
        { f.beyond, range(44, 2) }, { f.missing, range(46, 2) },
    })
    for place = 0, missing - 1 do
        tree:add(f.missing_place, range(48 + 2 * place, 2))
    end
    local horizon, lost = range(20, 4):uint(), 0
    for gap = 0, gaps - 1 do
        local bytes = range(LINK_BYTES + 4 * gap, 4)
        local first = (horizon - bytes(0, 2):uint()) % 2 ^ 32
        local item = tree:add(f.gap, bytes)
        item:add(f.gap_first, bytes(0, 2), first)
        item:add(f.gap_count, bytes(2, 2))
        lost = lost + bytes(2, 2):uint()
    end
    return string.format("up to %u, %u lost", horizon, lost)
end

bodies[7] = function(range, flags, tree)
    local ends = has(flags, SYS) and "source and sink" or "neighbours"
    if range:len() == HEADER_BYTES then return "hello, " .. ends end
    tree:add(f.message, range(HEADER_BYTES))
    return string.format("%u bytes, %s", range:len() - HEADER_BYTES, ends)
end

bodies[8] = function(range, _, tree)
    local entries = (range:len() - 64) / 8
    if entries < 0 or entries ~= math.floor(entries) or entries > 32 then return nil end
    for part = 16, 18 do
        tree:add(f.software, range(part, 1))
    end
    add(tree, {
        { f.codes, range(19, 1) }, { f.packet_bytes, range(20, 2) }, { f.instance, range(22, 2) },
        { f.clock, range(24, 8) }, { f.marks, range(32, 32) },
    })
    local refused = 0
    for entry = 0, entries - 1 do
        local bytes = range(64 + 8 * entry, 8)
        local item = tree:add(f.entry, bytes)
        add(item, {
            { f.entry_flow, bytes(0, 4) }, { f.entry_kind, bytes(4, 1) },
            { f.entry_code, bytes(5, 1) }, { f.entry_value, bytes(6, 2) },
        })
        if bytes(4, 1):uint() >= 128 then refused = refused + 1 end
    end
    return string.format("%d entries, %d refusals", entries, refused)
end

local function add_flags(range, kind, flags, tree)
    local branch = tree:add(f.flags, range)
    local has = {
        [1] = { "sys", "end", "recoded", "mended" },
        [2] = { "sys", "repair", "end", "recoded", "mended" },
        [5] = { "sys", "repair", "end", "interactive", "paths", "open_loop" },
        [7] = { "edge" },
    }
    for _, name in ipairs(has[kind] or {}) do
        branch:add(f["flags_" .. name], range)
    end
    if kind <= 2 then branch:add(f.field, range) end
end

function recoded.dissector(buffer, pinfo, root)
    local bytes = buffer:len()
    if bytes < HEADER_BYTES then return 0 end
    local first = buffer(0, 1):uint()
    local kind = first % 16
    if math.floor(first / 16) ~= VERSION or not TYPES[kind] then return 0 end
    pinfo.cols.protocol = "Recoded"
    local tree = root:add(recoded, buffer())
    -- Messages between neighbours have no tag; what has nothing else behind its header is a hello.
    local flags = buffer(1, 1):uint()
    local is_message = kind == 7 and not has(flags, SYS) and bytes > HEADER_BYTES + TAG_BYTES
    local has_tag = recoded.prefs.tags and not is_message and bytes >= HEADER_BYTES + TAG_BYTES
    local range = buffer(0, has_tag and bytes - TAG_BYTES or bytes)
    tree:add(f.version, range(0, 1))
    tree:add(f.type, range(0, 1))
    add_flags(range(1, 1), kind, flags, tree)
    add(tree, {
        { f.epoch, range(2, 1) }, { f.shard, range(3, 1) }, { f.flow, range(4, 4) },
        { f.link_sequence, range(8, 4) }, { f.hop_index, range(12, 1) },
    })
    local title = string.format(
        "%s, flow %u shard %u hop %u", TYPES[kind], range(4, 4):uint(), range(3, 1):uint(),
        range(12, 1):uint())
    local row = bodies[kind](range, flags, tree, pinfo, root)
    if not row then
        tree:add_proto_expert_info(malformed)
        row = "malformed"
    end
    if has_tag then
        local tag = buffer(bytes - TAG_BYTES)
        local branch = tree:add(f.tag, tag)
        branch:add(f.tag_key, tag(0, 1))
        branch:add(f.tag_counter, tag(1, 4))
    end
    pinfo.cols.protocol = "Recoded"
    pinfo.cols.info = title .. ": " .. row
    return bytes
end

local ports = DissectorTable.get("udp.port")
local port = recoded.prefs.port
ports:add(port, recoded)

function recoded.prefs_changed()
    if recoded.prefs.port ~= port then
        ports:remove(port, recoded)
        port = recoded.prefs.port
        ports:add(port, recoded)
    end
end
