# What the scripts share. Sourced, not run: the caller has set -euo pipefail and stands in the root
# of the repository.
# shellcheck shell=bash

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

is_root() { [ "$(id -u)" -eq 0 ]; }

# Debian and Ubuntu packages, each with a test that says whether it is there.
missing_packages() {
    local missing=()
    command -v ip >/dev/null && command -v tc >/dev/null || missing+=(iproute2)
    command -v iperf3 >/dev/null || missing+=(iperf3)
    command -v nft >/dev/null || missing+=(nftables)
    command -v nginx >/dev/null || missing+=(nginx-light)
    command -v curl >/dev/null || missing+=(curl)
    command -v ethtool >/dev/null || missing+=(ethtool)
    # Reads the metrics of a line, and checks alert rules (promtool).
    command -v prometheus >/dev/null || missing+=(prometheus)
    # Rivals of the kernels, which the bench opens when it runs.
    compgen -G '/usr/lib/*/libisal.so.2' >/dev/null || missing+=(libisal2)
    compgen -G '/usr/lib/*/libgf_complete.so.1' >/dev/null || missing+=(libgf-complete1)
    compgen -G '/usr/lib/*/libJerasure.so.2' >/dev/null || missing+=(libjerasure2)
    printf '%s\n' "${missing[@]}"
    missing_build_packages
}

# Debian and Ubuntu packages that the build needs: for libxdp and its bindings (xsk-rs), and for
# CUDA kernels that tests run on the CPU.
missing_build_packages() {
    local missing=()
    command -v c++ >/dev/null && command -v make >/dev/null || missing+=(build-essential)
    command -v clang >/dev/null || missing+=(clang)
    compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null || missing+=(libclang-dev)
    command -v m4 >/dev/null || missing+=(m4)
    command -v pkg-config >/dev/null || missing+=(pkg-config)
    [ -e /usr/include/libelf.h ] || missing+=(libelf-dev)
    [ -e /usr/include/zlib.h ] || missing+=(zlib1g-dev)
    printf '%s\n' "${missing[@]}"
}

# Debian and Ubuntu packages that only tests need: a reader of packets for Recoded's dissector,
# programs that reach the boxes of a network, and those that a fleet agent follows.
missing_test_packages() {
    command -v tshark >/dev/null || printf 'tshark\n'
    command -v ssh >/dev/null || printf 'openssh-client\n'
    [ -x /usr/sbin/sshd ] || command -v sshd >/dev/null || printf 'openssh-server\n'
    command -v etcd >/dev/null || printf 'etcd-server\n'
    command -v openssl >/dev/null || printf 'openssl\n'
    # Reads the Ansible role.
    python3 -c 'import yaml' 2>/dev/null || /usr/bin/python3 -c 'import yaml' 2>/dev/null ||
        printf 'python3-yaml\n'
    # Installs the Python module.
    python3 -c 'import ensurepip' 2>/dev/null || printf 'python3-venv\n'
    # Signs a repository for apt.
    command -v gpg >/dev/null || printf 'gnupg\n'
    # Looks at the page of a network.
    command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null ||
        command -v chromium-browser >/dev/null || printf 'chromium-headless-shell\n'
    # The fresh Debian for the installation of packages.
    command -v debootstrap >/dev/null || printf 'debootstrap\n'
    # Packages and modules of the machines of the lab.
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || printf 'debian-archive-keyring\n'
    command -v xz >/dev/null || printf 'xz-utils\n'
}

# Debian and Ubuntu packages that fetching the CUDA compiler needs (`scripts/cuda`).
missing_cuda_packages() {
    local missing=()
    python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
    command -v g++ >/dev/null || missing+=(g++)
    printf '%s\n' "${missing[@]}"
}

# Debian and Ubuntu packages that the simulated FPGA card needs (`kernels/fpga`).
missing_fpga_packages() {
    command -v verilator >/dev/null || printf 'verilator\n'
}

# The C compiler for 64-bit ARM, and the C library for it, as the packages below install them.
AARCH64_CC=aarch64-linux-gnu-gcc
AARCH64_ROOT=/usr/aarch64-linux-gnu

# Debian and Ubuntu packages that compile for 64-bit ARM and run the result on another CPU.
missing_aarch64_packages() {
    local missing=()
    command -v "$AARCH64_CC" >/dev/null || missing+=(gcc-aarch64-linux-gnu)
    [ -e "$AARCH64_ROOT/lib/crt1.o" ] || missing+=(libc6-dev-arm64-cross)
    aarch64_emulator >/dev/null || missing+=(qemu-user-static)
    printf '%s\n' "${missing[@]}"
}

# Its name: later systems have only the one that is not linked statically.
aarch64_emulator() { command -v qemu-aarch64-static || command -v qemu-aarch64; }

# Debian and Ubuntu packages that make static programs for both architectures, and an image.
missing_static_packages() {
    command -v gcc >/dev/null || printf 'gcc\n'
    missing_aarch64_packages
}

# Debian and Ubuntu packages that test the image: what runs it, and a second opinion on its layout,
# which brings the seccomp profile that containers have by default.
missing_image_packages() {
    command -v runc >/dev/null || printf 'runc\n'
    command -v skopeo >/dev/null || printf 'skopeo\n'
}

# Debian and Ubuntu packages that test OpenWrt packages: a shell as routers have it.
missing_openwrt_packages() {
    local program
    program=$(command -v busybox) && ! readelf --program-headers "$program" | grep -q INTERP ||
        printf 'busybox-static\n'
}

# fetch_sysroot ARCHITECTURE FOLDER PACKAGE...: unpacks packages into a folder, once, with lists of
# packages of its own, so that this machine keeps its architectures.
fetch_sysroot() {
    local architecture=$1 sysroot=$2 apt package
    shift 2
    [ ! -e "$sysroot/complete" ] || return 0
    apt=$sysroot/apt
    mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
    : >"$apt/status"
    local options=(-qq -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture"
        -o "Dir::State=$apt/state" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache"
        -o APT::Sandbox::User= -o Acquire::Languages=none)
    say "fetching for $architecture: $*"
    apt-get "${options[@]}" update
    (cd "$apt" && apt-get "${options[@]}" download "$@")
    for package in "$apt"/*.deb; do
        dpkg-deb --extract "$package" "$sysroot"
    done
    : >"$sysroot/complete"
}

# Installs those of the packages that `$1` lists as missing, and says which. Without root it can
# only name them.
install_packages() {
    local missing
    mapfile -t missing < <("$1" | sed '/^$/d')
    [ ${#missing[@]} -gt 0 ] || return 0
    if ! is_root; then
        say "not installed: ${missing[*]} (run with sudo to install them)"
        return 0
    fi
    command -v apt-get >/dev/null ||
        die "please install: ${missing[*]} (or what your system calls them; there is no apt-get here)"
    say "installing with apt: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    local services=()
    case " ${missing[*]} " in *' nginx-light '*) services+=(nginx) ;; esac
    case " ${missing[*]} " in *' prometheus '*) services+=(prometheus) ;; esac
    case " ${missing[*]} " in *' openssh-server '*) services+=(ssh) ;; esac
    case " ${missing[*]} " in *' etcd-server '*) services+=(etcd) ;; esac
    without_services "${services[*]}" apt_install "${missing[@]}"
}

apt_install() { apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }

# without_services "NAMES" COMMAND...: runs a command that installs these. Tests run theirs in a
# namespace; they are not meant to use this machine's ports, so their system services are neither
# started now nor at the next boot.
without_services() {
    local services
    read -ra services <<<"$1"
    shift
    if [ ${#services[@]} -eq 0 ] || [ ! -d /run/systemd/system ]; then
        "$@"
        return
    fi
    systemctl mask --quiet --runtime "${services[@]}"
    "$@"
    systemctl disable --quiet "${services[@]}" || true
    systemctl unmask --quiet --runtime "${services[@]}"
    say "installed for tests and the demo, their system services disabled: ${services[*]}"
}

# The user whose Rust toolchain and build folder are used: who called sudo, if they own the place.
build_user() {
    local owner
    owner=$(stat -c %U Cargo.toml)
    if is_root && [ -n "${SUDO_USER:-}" ] && [ "$SUDO_USER" = "$owner" ]; then
        printf '%s' "$SUDO_USER"
    else
        id -un
    fi
}

# Sets CARGO, and CARGO_HOME and RUSTUP_HOME where they are not root's own.
find_cargo() {
    local user home folder
    for user in "${SUDO_USER:-}" "$(id -un)"; do
        [ -n "$user" ] || continue
        home=$(getent passwd "$user" | cut -d: -f6)
        folder=$home/.cargo
        [ "$user" = "$(id -un)" ] && folder=${CARGO_HOME:-$folder}
        if [ -x "$folder/bin/cargo" ]; then
            CARGO=$folder/bin/cargo
            if [ "$user" != "$(id -un)" ]; then
                export CARGO_HOME=$folder RUSTUP_HOME=$home/.rustup
            fi
            export PATH=$folder/bin:$PATH
            return 0
        fi
    done
    CARGO=$(command -v cargo) && return 0
    die "no Rust toolchain found. Install one, as the user who will build:
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
}

# Runs a command as the build user, so that sudo leaves no files of root's in the build folder.
as_user() {
    local user
    user=$(build_user)
    if [ "$user" = "$(id -un)" ]; then
        "$@"
    else
        runuser -u "$user" -- env HOME="$(getent passwd "$user" | cut -d: -f6)" PATH="$PATH" "$@"
    fi
}

# Programs of releases list their crates in themselves (section .dep-v0), so that scanners of
# installed programs find known weaknesses.
CARGO_AUDITABLE_VERSION=0.7.7

# For `cargo auditable build`.
install_cargo_auditable() {
    command -v cargo-auditable >/dev/null && return
    say "installing cargo-auditable $CARGO_AUDITABLE_VERSION (a minute)"
    as_user "$CARGO" install "cargo-auditable@$CARGO_AUDITABLE_VERSION" --locked --debug --quiet
}

# is_audited PROGRAM: it has that list, of which `cargo xtask audited` reads more.
is_audited() {
    local sections
    sections=$(readelf --wide --sections "$1")
    grep -qF ' .dep-v0 ' <<<"$sections"
}

workspace_version() {
    sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml
}

# The time in archives: that of the last commit, so that the same sources give the same bytes. The
# repository may belong to another user, as in containers.
source_date() {
    printf %s "${SOURCE_DATE_EPOCH:-$(git -c safe.directory="$PWD" log -1 --format=%ct 2>/dev/null || printf 0)}"
}

# without_paths OPTION: the option, for each folder of this machine whose name would be in programs.
# Sources of the standard library get the names that they have where rustup has not fetched them.
without_paths() {
    local sysroot commit
    sysroot=$(as_user rustc --print sysroot)
    commit=$(as_user rustc --version --verbose | sed -n 's/^commit-hash: //p')
    printf -- "$1%s=%s " "$PWD" /recoded "${CARGO_HOME:-$HOME/.cargo}" /cargo \
        "$sysroot/lib/rustlib/src/rust" "/rustc/$commit"
}

target_folder() { printf '%s' "${CARGO_TARGET_DIR:-target}"; }

# generate_pages FOLDER PROGRAMS: manual pages and completions, printed by programs that run here;
# those of the agent in a folder of their own.
generate_pages() {
    local folder=$1 programs=$2 command shell
    mkdir -p "$folder"/{,agent/}{man,bash,zsh,fish}
    "$programs/recoded" --man >"$folder/man/recoded.8"
    "$programs/recodectl" man >"$folder/man/recodectl.1"
    "$programs/recodectl" man counters >"$folder/man/recoded-counters.7"
    "$programs/recodectl" man recoded.toml >"$folder/man/recoded.toml.5"
    for command in $("$programs/recodectl" help commands | cut -d ' ' -f 1 | grep -vx help); do
        "$programs/recodectl" man "$command" >"$folder/man/recodectl-$command.1"
    done
    "$programs/recoded-agent" print man >"$folder/agent/man/recoded-agent.8"
    gzip --best --no-name "$folder"/man/* "$folder"/agent/man/*
    for shell in bash zsh fish; do
        "$programs/recoded" --completion "$shell" >"$folder/$shell/recoded"
        "$programs/recodectl" completion "$shell" >"$folder/$shell/recodectl"
    done
    (cd "$folder" && for shell in recoded recodectl; do
        mv "zsh/$shell" "zsh/_$shell" && mv "fish/$shell" "fish/$shell.fish"
    done)
    "$programs/recoded-agent" print bash >"$folder/agent/bash/recoded-agent"
    "$programs/recoded-agent" print zsh >"$folder/agent/zsh/_recoded-agent"
    "$programs/recoded-agent" print fish >"$folder/agent/fish/recoded-agent.fish"
}
