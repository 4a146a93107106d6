//! Keys of `[[flow]]`.

use super::DefaultValue::{Depends, Is, Required};
use super::Role::{Relay, Sink, Source};
use super::Values::{Auto, Micros, Number, Numbers, Other, Truth, Whole, Words};
use super::{KEY, Key, LEARNED, Role, Table};

/// Codes, as keys of one code alone name them.
const RLNC: Option<&str> = Some("rlnc");
const BATS: Option<&str> = Some("bats");
const STREAM: Option<&str> = Some("stream");

/// Keys of `[[flow]]`.
pub const FLOW: Table = Table {
    section: "flow",
    keys: &[
        Key {
            name: "id",
            roles: &Role::ALL,
            values: Whole(0, 4_294_967_295),
            default: Required,
            meaning: "Number of the flow in every packet, the same on every host of its path.",
            ..KEY
        },
        Key {
            name: "role",
            roles: &Role::ALL,
            values: Words(&["source", "relay", "sink"]),
            default: Required,
            meaning: "What this host does for the flow: take IP packets, recode, or deliver.",
            ..KEY
        },
        Key {
            name: "tunnel",
            roles: &[Source, Sink],
            values: Other("the name of a tunnel", r#""rec0""#),
            default: Required,
            meaning: "The tunnel that packets come from or go to; a tunnel feeds one source.",
            elsewhere: "a relay has none",
            ..KEY
        },
        Key {
            name: "next_hops",
            roles: &[Source, Relay],
            values: Other("1 to 8 neighbours", r#"[{ link = "east", address = "10.0.2.2" }]"#),
            default: Required,
            meaning: "Where coded packets go; each must be reachable directly.",
            elsewhere: "a sink is where the flow ends",
            ..KEY
        },
        Key {
            name: "upstream",
            roles: &[Relay, Sink],
            values: Other(
                "a neighbour, or a list of up to 8",
                r#"{ link = "west", address = "10.0.1.1" }"#,
            ),
            default: Required,
            meaning: "Where feedback goes: the neighbour that packets come from, or those where \
                paths meet.",
            elsewhere: "a source is where feedback ends",
            ..KEY
        },
        Key {
            name: "spread",
            roles: &[Source, Relay],
            values: Words(&["every", "sum", "backup"]),
            default: Is(r#""every""#),
            meaning: "What several next hops get: every one everything (several receivers, or \
                copies on several paths to one); sum: each its part, so that the rates of paths to \
                one receiver add up; backup: the first that answers has all. The last two are for \
                code stream with automatic redundancy, since the state of paths comes from \
                reports; with rlnc sum sends to each in turn, for branches that relays combine \
                where they meet.",
            elsewhere: "a sink is where the flow ends",
            ..KEY
        },
        Key {
            name: "lag_timeout_us",
            roles: &[Source, Relay],
            values: Micros(1_000, 10_000_000),
            default: Is("500000"),
            meaning: "Code stream, several receivers: a packet is sent to each receiver until this \
                time and four round trips after its arrival. A receiver that is slower or gone \
                misses the packet and delays no other; raise it where links stall briefly.",
            elsewhere: "a sink is where the flow ends",
            ..KEY
        },
        Key {
            name: "edge_key",
            roles: &[Source, Sink],
            values: Other(
                "44 characters, as recodectl pubkey prints them",
                r#""hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=""#,
            ),
            default: Depends("auth = \"full\" needs it, and nothing else has it"),
            meaning: "Public key of the host at the other end of the flow: IP packets are encrypted \
                for its owner.",
            elsewhere: "a relay passes on what it cannot read",
            ..KEY
        },
        Key {
            name: "edge_preshared_key",
            roles: &[Source, Sink],
            values: Other("an absolute path", r#""/etc/recoded/edge.psk""#),
            default: Depends("there is none"),
            meaning: "File of a key that both ends share besides, mode 0600, as recodectl genpsk \
                makes it.",
            elsewhere: "a relay passes on what it cannot read",
            ..KEY
        },
        Key {
            name: "edge_one_way",
            roles: &[Source, Sink],
            values: Truth,
            default: Depends("keys come of handshakes"),
            meaning: "Whether keys of the flow are derived from edge_preshared_key alone, which is \
                then required; both ends must agree. For paths without a return path, where no \
                handshake can complete.",
            elsewhere: "a relay passes on what it cannot read",
            ..KEY
        },
        Key {
            name: "edge_name",
            roles: &[Source, Sink],
            values: Other("the name of a box, 1 to 32 letters, digits, - and _", r#""server""#),
            default: Depends("recodectl shows the flow's number"),
            meaning: "Name of the box at the other end of the flow, which recodectl shows.",
            elsewhere: "a relay is no end of the flow",
            ..KEY
        },
        Key {
            name: "edge_profile",
            roles: &[Source, Sink],
            values: Words(&["standard", "strict"]),
            default: Depends("\"standard\""),
            meaning: "Tags of symbols, both ends alike: of 8 bytes, which a forger guesses once in \
                2^64 tries, or of 16, once in 2^128; these take 8 bytes more of each symbol, and \
                relays of relay_keys get a quarter of the columns each, not half. Ends that differ \
                agree on no keys, and both say so (recodectl show). Only with edge_key or \
                sink_keys.",
            elsewhere: "a relay learns it from the source",
            ..KEY
        },
        Key {
            name: "sink_keys",
            roles: &[Source],
            values: Other(
                "a list of 1 to 64 public keys, as recodectl pubkey prints them",
                r#"["hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="]"#,
            ),
            default: Depends("edge_key names the only sink"),
            meaning: "Public keys of the sinks of a flow that has several, in place of edge_key. \
                This host draws keys of the flow every 10 s and when the list changes, and sends \
                them to each sink. A removed sink cannot decrypt packets sent more than a second \
                later; the others lose no packet. With auth = \"full\" only; each sink has this \
                host's key as edge_key, and edge_group = true.",
            elsewhere: "the source says who may read the flow",
            ..KEY
        },
        Key {
            name: "edge_group",
            roles: &[Sink],
            values: Truth,
            default: Depends("the flow has one sink"),
            meaning: "Whether the flow has several sinks, this host's key being among sink_keys of \
                its source: keys are those that the owner of edge_key tells, without a handshake.",
            elsewhere: "the source has sink_keys, and a relay passes on what it cannot read",
            ..KEY
        },
        Key {
            name: "relay_keys",
            roles: &[Source],
            values: Other(
                "a list of 1 to 64 public keys, as recodectl pubkey prints them",
                r#"["hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="]"#,
            ),
            default: Depends("no relay verifies symbols"),
            meaning: "Public keys of relays, in the order of the path. Each gets four of the \
                columns of the symbols' tags, consecutive relays different ones, and drops symbols \
                that an earlier relay corrupted instead of mixing them with others. With auth = \
                \"full\" only; each names the key of this host as source_key.",
            elsewhere: "the source has the keys that tags are made with",
            ..KEY
        },
        Key {
            name: "source_key",
            roles: &[Relay],
            values: Other(
                "44 characters, as recodectl pubkey prints them",
                r#""hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=""#,
            ),
            default: Depends("symbols are mixed as they come"),
            meaning: "Public key of the flow's source, which has this host's among its relay_keys: \
                symbols are verified by the columns that it grants (tag_verified, tag_refused). \
                Until they come, symbols are mixed as they come.",
            elsewhere: "the other end of the flow is its edge_key",
            ..KEY
        },
        Key {
            name: "shards",
            roles: &[Source],
            values: Whole(1, 16),
            default: Depends("as many as workers, 16 at most"),
            meaning: "Streams that the connections in the tunnel are spread over; each is the work \
                of one core at every host, so set it to the most workers of any host of the path.",
            elsewhere: LEARNED,
            ..KEY
        },
        Key {
            name: "code",
            roles: &[Source],
            is_live: true,
            values: Words(&["auto", "stream", "rlnc", "bats"]),
            default: Is(r#""auto""#),
            meaning: "What protects the flow; auto is stream where the flow has repair \
                and automatic redundancy, and a packet of the tunnel fits one symbol, else \
                rlnc. Choose bats for bulk over many lossy hops. Choose stream with a fixed \
                redundancy for low delay without a return path: an open loop, which retransmits \
                nothing.",
            elsewhere: LEARNED,
            ..KEY
        },
        Key {
            name: "field",
            roles: &[Source],
            is_live: true,
            values: Numbers(&[2, 4, 16, 256]),
            default: Is("16"),
            meaning: "Order of the field of coding coefficients, of a stream 256, and chosen by \
                code auto; larger wastes fewer packets and lengthens headers.",
            elsewhere: LEARNED,
            ..KEY
        },
        Key {
            name: "generation_size",
            roles: &[Source],
            code: RLNC,
            is_live: true,
            values: Whole(1, 256),
            unit: "symbols",
            default: Is("16"),
            meaning: "Symbols per generation, which must hold a full-size packet of the tunnel and 2 \
                bytes; 16 suits interactive traffic, 64 bulk, which waits longer for a loss and \
                evens losses out better.",
            ..KEY
        },
        Key {
            name: "block_symbols",
            roles: &[Source],
            code: BATS,
            is_live: true,
            values: Whole(1, 4096),
            unit: "source symbols",
            default: Is("256"),
            meaning: "Source symbols of a block, which must hold a full-size packet of the tunnel and \
                2 bytes; larger blocks need fewer packets in excess and wait longer.",
            ..KEY
        },
        Key {
            name: "batch_size",
            roles: &[Source],
            code: BATS,
            is_live: true,
            values: Whole(1, 128),
            unit: "packets",
            default: Is("16"),
            meaning: "Packets of a batch, which relays recode together; larger ones lose less per \
                hop and lengthen headers.",
            ..KEY
        },
        Key {
            name: "profile",
            roles: &[Source],
            code: BATS,
            is_live: true,
            values: Words(&["cyclic-shift", "precoded", "baseline"]),
            default: Is(r#""cyclic-shift""#),
            meaning: "How batches combine source symbols; change it to compare: the others compute \
                more or need more packets.",
            ..KEY
        },
        Key {
            name: "generator_bits",
            roles: &[Source],
            code: BATS,
            is_live: true,
            values: Numbers(&[1, 2, 3, 4, 8]),
            default: Is("8"),
            meaning: "Bits of the coefficients in batches; lower it where hardware does the \
                arithmetic, for a few more packets.",
            ..KEY
        },
        Key {
            name: "interleave",
            roles: &[Source],
            code: BATS,
            is_live: true,
            values: Auto(&Whole(1, 255)),
            unit: "batches",
            default: Is(r#""auto""#),
            meaning: "Batches whose packets take turns, automatically twice the mean burst of the \
                worst hop; raise it where bursts of losses hit few batches entirely.",
            ..KEY
        },
        Key {
            name: "stream_symbols",
            roles: &[Source],
            code: STREAM,
            is_auto: true,
            is_live: true,
            values: Whole(64, 32_768),
            unit: "packets",
            default: Depends(
                "32768, half for symbols above 2560 bytes, a quarter above 5120; halved, to 512 at \
                 least, until all flows of this host fit its memory",
            ),
            meaning: "Packets that every node keeps until the next one has them, rounded up to a \
                power of two: what one hop sends in two round trips or more.",
            ..KEY
        },
        Key {
            name: "stream_profile",
            roles: &[Source],
            code: STREAM,
            is_auto: true,
            is_live: true,
            values: Words(&["balanced", "interactive"]),
            default: Is(r#""balanced""#),
            meaning: "How many packets each hop sends in advance; interactive, for calls, games and \
                shells over long lossy links, sends more, above all for sparse traffic.",
            ..KEY
        },
        Key {
            name: "symbol_bytes",
            roles: &Role::ALL,
            values: Whole(16, 9194),
            unit: "bytes",
            default: Depends(
                "source: what the MTU of the next hops leaves; relay and sink: what its frames hold",
            ),
            meaning: "Bytes per symbol, at a relay or sink the most accepted; set it where a hop \
                further on has a smaller MTU.",
            ..KEY
        },
        Key {
            name: "redundancy",
            roles: &[Source],
            is_live: true,
            values: Auto(&Number(1.0, 32.0)),
            unit: "packets per symbol",
            default: Is(r#""auto""#),
            meaning: "Packets sent per symbol, automatically what the measured losses need for \
                target_loss; fix it where no feedback comes back. A stream retransmits under auto; \
                a number makes it an open loop, where every hop sends that many packets per symbol \
                and waits for no reports.",
            ..KEY
        },
        Key {
            name: "target_loss",
            roles: &[Source],
            is_live: true,
            values: Number(1e-9, 0.5),
            unit: "of all generations",
            default: Is("1e-4"),
            meaning: "Share that may stay incomplete under automatic redundancy; raise it to 1e-2 \
                for media with concealment of its own.",
            ..KEY
        },
        Key {
            name: "redundancy_max",
            roles: &[Source, Relay],
            is_live: true,
            values: Number(1.0, 32.0),
            unit: "packets per symbol",
            default: Is("4.0"),
            meaning: "Most packets sent per symbol, regardless of requests and reports; raise it \
                for losses above three quarters, except at a source of code bats: its sink is sure \
                to accept 4 and may drop packets beyond that.",
            ..KEY
        },
        Key {
            name: "flush_timeout_us",
            roles: &[Source],
            is_live: true,
            values: Micros(1, 1_000_000),
            default: Is("1000"),
            meaning: "A generation that is not full closes after this time; lower it for less delay \
                of sparse traffic, raise it for less overhead.",
            ..KEY
        },
        Key {
            name: "generation_timeout_us",
            roles: &[Relay, Sink],
            is_live: true,
            values: Micros(1, 10_000_000),
            default: Is("20000"),
            meaning: "Relay: an open generation closes after this time without a packet. Sink: wait \
                before asking for repair. Raise it above the jitter of the path.",
            ..KEY
        },
        Key {
            name: "hold_timeout_us",
            roles: &[Sink],
            is_live: true,
            values: Micros(1, 60_000_000),
            default: Is("200000"),
            meaning: "How long delivery in order waits for a generation; raise it above \
                generation_timeout_us and one round trip.",
            ..KEY
        },
        Key {
            name: "recoding",
            roles: &[Relay],
            is_live: true,
            values: Words(&["systematic", "random"]),
            default: Is(r#""systematic""#),
            meaning: "Whether innovative packets are forwarded at once or combined when the \
                generation closes; random hides the order of arrival.",
            ..KEY
        },
        Key {
            name: "onward_share",
            roles: &[Relay],
            values: Number(0.01, 1.0),
            default: Is("1"),
            meaning: "Of the packets planned for each generation that comes, of all upstreams \
                together, the share that is sent on. Below 1, with recoding random, where branches \
                meet in front of a link that carries less than they do, and receivers get the rest \
                on other ways: half where two do.",
            ..KEY
        },
        Key {
            name: "adaptive",
            roles: &[Relay],
            is_live: true,
            values: Truth,
            default: Is("true"),
            meaning: "Whether packets for a batch of a BATS flow follow what has arrived of it; \
                false sends as many for each, for comparison.",
            ..KEY
        },
        Key {
            name: "wrong_tags_max",
            roles: &[Relay, Sink],
            values: Whole(0, 1_000_000),
            unit: "packets",
            default: Is("64"),
            meaning: "Symbols with wrong tags within a minute after which a neighbour gets other \
                keys and, where others bring the flow, is not heard for 10 s, the next time for 20 \
                s; 0 allows any number.",
            ..KEY
        },
        Key {
            name: "repair",
            roles: &[Source, Sink],
            is_live: true,
            values: Truth,
            default: Is("true"),
            meaning: "Whether the sink requests the symbols that a generation lacks and the source \
                answers; turn it off if the return path is missing or slow, which makes code auto \
                rlnc. In an open loop (code stream, a fixed redundancy) the sink requests none.",
            ..KEY
        },
    ],
};
