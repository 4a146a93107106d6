//! Folders in, folders out.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use crate::support::{Place, random_bytes, seed};

/// A folder with everything that is kept.
fn make_tree(place: &Place) {
    for folder in ["tree", "tree/empty", "tree/deep", "tree/deep/deeper"] {
        std::fs::create_dir(place.path(folder)).expect("it is new");
    }
    place.write("tree/empty file", b"");
    place.write("tree/deep/large", &random_bytes(seed(), 3_000_000));
    place.write("tree/deep/deeper/script", b"#!/bin/sh\n");
    place.write(&format!("tree/{}", "long name ".repeat(20)), b"it exceeds a tar header");
    set_mode(&place.path("tree/deep/deeper/script"), 0o751);
    place.write("tree/setuid", b"it would run as another user");
    set_mode(&place.path("tree/setuid"), 0o4755);
    symlink("deep/large", place.path("tree/link")).expect("it is new");
    symlink("/nowhere/at/all", place.path("tree/dangling")).expect("it is new");
    set_mode(&place.path("tree/deep/deeper"), 0o555);
    for (index, folder) in ["tree/empty", "tree/deep", "tree/deep/deeper"].iter().enumerate() {
        let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + index as u64);
        let folder = std::fs::File::open(place.path(folder)).expect("it exists");
        folder.set_modified(time).expect("it is ours");
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it exists");
}

/// Paths, kinds, modes, times and contents below a folder.
fn list(root: &Path, inner: &Path, into: &mut Vec<String>) {
    let mut names: Vec<_> = root.join(inner).read_dir().expect("it is a folder").collect();
    names.sort_by_key(|entry| entry.as_ref().map(|entry| entry.file_name()).ok());
    for entry in names {
        let entry = entry.expect("it exists");
        let (inner, path) = (inner.join(entry.file_name()), entry.path());
        let metadata = path.symlink_metadata().expect("it exists");
        let modified = metadata.modified().expect("it is known");
        let seconds = modified.duration_since(std::time::UNIX_EPOCH).map_or(0, |it| it.as_secs());
        let mode = metadata.permissions().mode();
        if metadata.is_symlink() {
            into.push(format!("{inner:?} -> {:?}", path.read_link().expect("it is a link")));
        } else if metadata.is_dir() {
            into.push(format!("{inner:?} {mode:o} {seconds}"));
            list(root, &inner, into);
        } else {
            let sum = blake3::hash(&std::fs::read(&path).expect("it exists"));
            into.push(format!("{inner:?} {mode:o} {seconds} {sum}"));
        }
    }
}

fn tree(path: &Path) -> Vec<String> {
    let mut listed = Vec::new();
    list(path, Path::new(""), &mut listed);
    listed
}

#[test]
fn folder_returns_with_modes_times_and_links() {
    let place = Place::new();
    make_tree(&place);
    place.succeed("encode tree/ --data 4 --parity 2 --output tree.set");
    for shard in [1, 5] {
        place.lose("tree.set", shard);
    }
    place.succeed("recover tree.set --output back");
    // The owner is not stored, so that this bit is dropped.
    set_mode(&place.path("tree/setuid"), 0o755);
    let (before, after) = (tree(&place.path("tree")), tree(&place.path("back")));
    assert_eq!(before, after);
    assert_eq!(before.len(), 10, "{before:?}");
    assert!(place.succeed("info tree.set").text.contains("folder, as a tar archive"));
    let archive = place.content("tree.set");
    let entries = tar::Archive::new(&archive[..]).entries().expect("it is an archive").count();
    assert_eq!(entries, 10);
    set_mode(&place.path("tree/deep/deeper"), 0o755);
    set_mode(&place.path("back/deep/deeper"), 0o755);
}

#[test]
fn empty_folder_returns() {
    let place = Place::new();
    std::fs::create_dir(place.path("tree")).expect("it is new");
    place.succeed("encode tree -k 2 -m 1 -o set");
    place.succeed("recover set -o back");
    assert_eq!(tree(&place.path("back")), [""; 0]);
}

#[test]
fn sockets_are_refused_and_nothing_is_left() {
    let place = Place::new();
    std::fs::create_dir(place.path("tree")).expect("it is new");
    let _socket = UnixListener::bind(place.path("tree/socket")).expect("the name is free");
    let refused = place.run("encode tree -k 2 -m 1 -o set");
    assert_eq!(refused.code, 1);
    assert!(refused.text.contains("socket is no file, folder or symbolic link\nfix: remove it"));
    let left = place.path("").read_dir().expect("it exists").count();
    assert_eq!(left, 1, "only the tree is left");
}

#[test]
fn output_inside_the_folder_is_refused() {
    let place = Place::new();
    std::fs::create_dir(place.path("tree")).expect("it is new");
    let refused = place.run("encode tree -k 2 -m 1 -o tree/set");
    assert_eq!(refused.code, 2);
    assert!(refused.text.contains("is inside the folder to protect"), "{}", refused.text);
}

#[test]
fn existing_folder_is_not_overwritten() {
    let place = Place::new();
    make_tree(&place);
    place.succeed("encode tree -k 2 -m 1 -o set");
    let refused = place.run("recover set -o tree");
    assert_eq!(refused.code, 2);
    assert!(refused.text.contains("tree exists\nfix: choose another output"), "{}", refused.text);
    set_mode(&place.path("tree/deep/deeper"), 0o755);
}

#[test]
fn damaged_archive_is_not_extracted() {
    let place = Place::new();
    make_tree(&place);
    place.succeed("encode tree -k 2 -m 1 --unit-kib 4 -o set");
    for shard in 0..2 {
        place.change("set", shard, |bytes| bytes[128 + 100 * (4096 + 32)] ^= 1);
    }
    let refused = place.run("recover set -o back");
    assert_eq!(refused.code, 1);
    assert!(refused.text.contains("stripe 100: 1 of the 2 units"), "{}", refused.text);
    // Neither the folder nor a draft of it is left: the tree and the set are.
    assert_eq!(place.path("").read_dir().expect("it exists").count(), 2);
    set_mode(&place.path("tree/deep/deeper"), 0o755);
}
