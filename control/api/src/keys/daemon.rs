//! Keys of `[daemon]`, `[[link]]`, `[[tunnel]]` and `[[neighbour]]`: fixed from start to stop, but
//! for `engine`.

use super::DefaultValue::{Depends, Is, Required};
use super::Values::{Mbit, Other, Truth, Whole, Words};
use super::{KEY, Key, Table};

/// Keys of `[daemon]`.
pub const DAEMON: Table = Table {
    section: "daemon",
    keys: &[
        Key {
            name: "socket",
            values: Other("an absolute path of at most 107 bytes", r#""/run/other.sock""#),
            default: Is(r#""/run/recoded/recoded.sock""#),
            meaning: "Unix socket of the daemon, to which recodectl connects; change it to run \
                several daemons on one host.",
            ..KEY
        },
        Key {
            name: "workers",
            values: Whole(1, 64),
            unit: "threads",
            default: Is("1"),
            meaning: "Worker threads, which share the receive queues of every link; raise it where \
                one core does not suffice.",
            ..KEY
        },
        Key {
            name: "cores",
            values: Other("a list of cores, as many as workers, each once", "[1]"),
            default: Depends("Linux places the workers"),
            meaning: "The core of each worker; set it to cores of the NIC's NUMA node for the last \
                tenth of throughput.",
            ..KEY
        },
        Key {
            name: "idle",
            values: Words(&["busy", "adaptive", "interrupt"]),
            default: Is(r#""adaptive""#),
            meaning: "What a worker does when no packet arrives: poll without end for least delay, \
                poll for a while and then sleep, or sleep at once for least power.",
            ..KEY
        },
        Key {
            name: "frames",
            values: Whole(1024, 1_048_576),
            unit: "buffers",
            default: Is("16384"),
            meaning: "Packet buffers per worker, locked in memory; raise it when send_failed, \
                ingress_dropped or generations_evicted of flows grow. Links with an MTU above 1778 \
                have larger ones, and 8192 of them by default, above 3826 4096. Below 256 MiB of \
                memory, the default is a quarter.",
            ..KEY
        },
        Key {
            name: "port",
            values: Whole(1, 65535),
            default: Is("9426"),
            meaning: "UDP destination port of coded packets, the same on every host of the path; \
                change it where another program has it.",
            ..KEY
        },
        Key {
            name: "xdp_mode",
            values: Words(&["auto", "zero-copy", "native", "generic"]),
            default: Is(r#""auto""#),
            meaning: "Which XDP and AF_XDP modes may be used; name one to get it or an error, or \
                where the best that a driver offers is broken.",
            ..KEY
        },
        Key {
            name: "generations",
            values: Whole(2, 4096),
            unit: "generations or batches",
            default: Is("256"),
            meaning: "What each flow holds at once, allocated when it is created; raise it with \
                bandwidth times delay, when generations_evicted grows.",
            ..KEY
        },
        Key {
            name: "memory",
            values: Other("a size of 4 MiB to 1024 GiB", r#""2 GiB""#),
            default: Is(r#""512 MiB""#),
            meaning: "What may be allocated for packets and flows; raise it when a file or a live \
                change is refused for needing more. Below 256 MiB of memory, the default is a \
                quarter of that, and at least 32 MiB. On larger boxes with more than some 80 \
                tunnels it is doubled until the smallest windows of all fit, up to half of the \
                memory of the box. A reload never lowers a default.",
            ..KEY
        },
        Key {
            name: "engine",
            is_live: true,
            values: Words(&["auto", "cpu", "cuda", "fpga"]),
            default: Is(r#""auto""#),
            meaning: "Who solves large generations at a sink: whichever is faster, the workers, or \
                a card whenever it works; change it live with recodectl set engine.",
            ..KEY
        },
        Key {
            name: "fpga",
            values: Other(
                "xdma:N, xdma:N@ADDRESS, vfio:PCI-ADDRESS or simulated",
                r#""vfio:0000:03:00.0""#,
            ),
            default: Depends("there is none"),
            meaning: "The FPGA card; neither way to a card has been run on one, and a simulated \
                card is far slower than the CPU.",
            ..KEY
        },
        Key {
            name: "metrics",
            values: Other("an IP address and a port", r#""127.0.0.1:9427""#),
            default: Depends("there are none"),
            meaning: "Where Prometheus gets metrics, by HTTP and in the clear, under /metrics; give \
                an address of this host only on a network whose users may see them.",
            ..KEY
        },
        Key {
            name: "private_key",
            values: Other("an absolute path", r#""/etc/recoded/private.key""#),
            default: Depends("there is none, and nothing is authenticated"),
            meaning: "File of this host's private key, mode 0600, as recodectl genkey makes it.",
            ..KEY
        },
        Key {
            name: "auth",
            values: Words(&["full", "hop", "none"]),
            default: Depends("full with a private_key, else none"),
            meaning: "What is authenticated: every packet between neighbours and, encrypted, every \
                IP packet from source to sink; only the former; nothing.",
            ..KEY
        },
        Key {
            name: "standby",
            values: Truth,
            default: Is("true"),
            meaning: "Whether a process waits to take over from the one that sees packets when that \
                is killed, hangs, or reads another configuration: a shorter gap, for twice the \
                frames. With UDP sockets alone there is none. Below 256 MiB of memory, the default \
                is false.",
            ..KEY
        },
        Key {
            name: "sandbox",
            values: Words(&["on", "off"]),
            default: Is(r#""on""#),
            meaning: "Whether the process that sees packets gives up all privileges first; switch it \
                off to debug that process, or where Linux kills it.",
            ..KEY
        },
        Key {
            name: "user",
            values: Other("the name or number of a user", r#""recoded""#),
            default: Depends(
                "recoded, which the package makes, where there is such a user, and the daemon is \
                 root and uses no accelerator",
            ),
            meaning: "User that the process that sees packets becomes in its sandbox, for good; \
                root to stay root. It should own no files and run nothing else.",
            ..KEY
        },
    ],
};

/// Keys of `[[link]]`.
pub const LINK: Table = Table {
    section: "link",
    keys: &[
        Key {
            name: "name",
            values: Other("1 to 32 letters, digits, - and _", r#""west""#),
            default: Required,
            meaning: "Name that flows refer to.",
            ..KEY
        },
        Key {
            name: "interface",
            values: Other("a network interface as ip link shows it", r#""eth0""#),
            default: Required,
            meaning: "The interface that carries coded packets; each belongs to one link. One without \
                an Ethernet header (PPP, a raw-IP modem, GRE, WireGuard) has UDP sockets.",
            ..KEY
        },
        Key {
            name: "local",
            values: Other("an IP address of this host, 0.0.0.0 or ::", r#""10.0.1.2""#),
            default: Depends(
                "the interface's address of its neighbours' subnet, or of their family",
            ),
            meaning: "This host's address on the link: the source address of its packets. 0.0.0.0 \
                or :: leaves the choice to Linux and requires UDP sockets. Set it if several \
                addresses suit.",
            ..KEY
        },
        Key {
            name: "backend",
            values: Words(&["auto", "xdp", "udp"]),
            default: Is(r#""auto""#),
            meaning: "Sockets of the link. xdp: AF_XDP sockets behind an XDP program. udp: UDP \
                sockets, which need no privilege. auto: xdp where it is available, but udp where \
                that is faster: at nodes with a tunnel, on interfaces without an Ethernet header, \
                without hardware or without native XDP. recodectl show reports the choice and its \
                reason.",
            ..KEY
        },
        Key {
            name: "rate_mbit",
            values: Mbit(0.001, 1e6),
            default: Depends("as fast as the interface takes packets"),
            meaning: "Pacing rate of outgoing packets, Ethernet headers included; set it a little \
                below the rate of the bottleneck.",
            ..KEY
        },
    ],
};

/// Keys of `[[neighbour]]`.
pub const NEIGHBOUR: Table = Table {
    section: "neighbour",
    keys: &[
        Key {
            name: "link",
            values: Other("the name of a link", r#""east""#),
            default: Required,
            meaning: "The link that it is on.",
            ..KEY
        },
        Key {
            name: "address",
            values: Other("an IP address or a host name", r#""10.0.2.2""#),
            default: Required,
            meaning: "Its address on the link, or a name that the resolver of this host knows, as \
                next_hops and upstream of flows have it.",
            ..KEY
        },
        Key {
            name: "public_key",
            values: Other(
                "44 characters, as recodectl pubkey prints them",
                r#""hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=""#,
            ),
            default: Required,
            meaning: "Its public key: packets are taken from and sent to the owner of that only.",
            ..KEY
        },
        Key {
            name: "preshared_key",
            values: Other("an absolute path", r#""/etc/recoded/east.psk""#),
            default: Depends("there is none"),
            meaning: "File of a key that both share besides, mode 0600, as recodectl genpsk makes \
                it: what was recorded then stays secret even from who breaks the pairs of keys.",
            ..KEY
        },
        Key {
            name: "one_way",
            values: Truth,
            default: Is("false"),
            meaning: "Whether keys are derived from preshared_key alone, which is then required; \
                both sides must agree. For links without a return path, where no handshake can \
                complete. Keys change every 10 s; an attacker who learns preshared_key can decrypt \
                recorded traffic.",
            ..KEY
        },
        Key {
            name: "roams",
            values: Truth,
            default: Is("false"),
            meaning: "Whether it is where its newest packet with a right tag came from, so that its \
                address and port may change while it runs; address is where it is first. Takes UDP \
                sockets.",
            ..KEY
        },
        Key {
            name: "path",
            values: Whole(0, 255),
            default: Is("0"),
            meaning: "Number of this path to it, the same at both ends: several paths to one key, \
                over one link or several, have keys each, and roam each by itself.",
            ..KEY
        },
        Key {
            name: "name",
            values: Other("the name of a box, 1 to 32 letters, digits, - and _", r#""relay""#),
            default: Depends("its address is shown"),
            meaning: "Name of the box, which recodectl shows instead of its address.",
            ..KEY
        },
    ],
};

/// Keys of `[[tunnel]]`.
pub const TUNNEL: Table = Table {
    section: "tunnel",
    keys: &[
        Key {
            name: "name",
            values: Other("1 to 15 bytes without space or slash", r#""rec0""#),
            default: Required,
            meaning: "The TUN interface to create; it goes when the daemon stops.",
            ..KEY
        },
        Key {
            name: "address",
            values: Other(
                "an IP address with the length of its prefix, or a list of 1 to 8",
                r#"["10.99.0.1/24", "fd00:99::1/64"]"#,
            ),
            default: Required,
            meaning: "Addresses of the interface, IPv4 and IPv6; of each family Linux sends from \
                the first.",
            ..KEY
        },
        Key {
            name: "mtu",
            values: Whole(576, 9216),
            unit: "bytes",
            default: Depends(
                "the symbol size of the source flow that reads from it, minus 3, and at most that of \
                a stream, but at least 576, for IPv6 1280; 1400 if there is none",
            ),
            meaning: "MTU of the interface, for IPv6 at least 1280; set it where hosts behind the \
                tunnel need a certain one. It is less while the path of a stream carries less.",
            ..KEY
        },
        Key {
            name: "routes",
            values: Other(
                "a list of up to 256 subnets; none but 0.0.0.0/0 and ::/0 contains a neighbour",
                r#"["192.168.7.0/24"]"#,
            ),
            default: Is("[]"),
            meaning: "Subnets behind the other end: routes into the tunnel, kept while it exists \
                (`ip route show proto 83`). Hosts there need a return path: `routes` at the other \
                end. 0.0.0.0/0 and ::/0 send everything but packets of links there (`ip route show \
                table 9426`, `ip rule`).",
            ..KEY
        },
        Key {
            name: "exit",
            values: Words(&["ipv4", "ipv6", "both"]),
            default: Depends("the other end sends only to networks that this host knows"),
            meaning: "What the other end sends to any destination by this host. `doctor` and \
                `--check` then look for forwarding and masquerade, and print the commands; the \
                daemon changes neither.",
            ..KEY
        },
        Key {
            name: "kill_switch",
            values: Truth,
            default: Is("false"),
            meaning: "Whether what is routed into the tunnel stays unreachable without it, after a \
                stop, too, until `ip route flush proto 82`, so that it never leaves in the clear.",
            ..KEY
        },
        Key {
            name: "tcp_split",
            values: Other("the address of the other end in the tunnel", r#""10.99.0.2""#),
            default: Depends("TCP connections pass as they are"),
            meaning: "TCP connections end at both edges of the tunnel, which fills long paths for \
                hosts as they are; the other end needs it, too. docs/split.md has the costs.",
            ..KEY
        },
    ],
};
