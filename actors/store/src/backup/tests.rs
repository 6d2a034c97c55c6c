use std::os::unix::fs::PermissionsExt;

use super::*;

fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A data folder with a file of each kind.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "node.key",
        "token",
        "grants.journal",
        "audit.head",
        "audit/00000001.jsonl",
        "audit/closed",
        "cluster/logs/logs",
        "cluster/logs/owed",
        "cluster/index/a",
        "pins/it.json",
        "sign-ins.json",
        "views/db",
        "kernel.lock",
        "files.witness",
        ".0000.new",
    ] {
        put(&dir.path().join("data"), name, &name.repeat(100));
    }
    dir
}

fn make(data_dir: &Path, file: &Path) -> Result<BackupManifest, BackupError> {
    let from = BackupSource {
        data_dir,
        configuration: &[],
        version: "1",
    };
    back_up(&from, file, false, &mut || ())
}

fn back_up_of(dir: &tempfile::TempDir) -> PathBuf {
    let file = dir.path().join("backup.tar");
    make(&dir.path().join("data"), &file).unwrap();
    file
}

#[test]
fn lasting_files_are_backed_up_and_restored() {
    let dir = folder();
    let (data, file) = (dir.path().join("data"), back_up_of(&dir));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&file), 0o600);
    let place = dir.path().join("again");
    let manifest = restore(&file, &place, &mut || ()).unwrap();
    assert_eq!(manifest.secrets(), ["node.key", "token"]);
    let names: Vec<&str> = manifest.files.keys().map(String::as_str).collect();
    let expected = [
        "audit.head",
        "audit/00000001.jsonl",
        "cluster/logs/logs",
        "cluster/logs/owed",
        "grants.journal",
        "node.key",
        "pins/it.json",
        "token",
    ];
    assert_eq!(names, expected);
    for name in expected {
        let (before, after) = (data.join(name), place.join(name));
        assert_eq!(
            fs::read(before).unwrap(),
            fs::read(&after).unwrap(),
            "{name}"
        );
        assert_eq!(mode(&after), 0o600);
    }
    assert_eq!(mode(&place), 0o700);
    let witnesses = Witnesses::open(&place).unwrap().witnesses;
    let from = witnesses.witness(RESTORED).contents().unwrap().settled;
    assert!(from.unwrap().contains("restored from the backup of"));
    assert!(witnesses.witness(RESTORED_LOGS).contents().is_some());
}

/// Files are copied before the files they are derived from, so that no file of a backup refers to something the others
/// lack.
#[test]
fn files_are_copied_in_dependency_order() {
    let mut names = [
        "grants.journal",
        "cluster/logs/logs",
        "pins/it.json",
        "cluster/logs/owed",
        "audit/00000001.jsonl",
        "pinned/it",
        "audit.head",
    ];
    names.sort_by_key(|name| copy_rank(name));
    let at = |name| names.iter().position(|it| *it == name).unwrap();
    for (first, then) in [
        ("audit.head", "audit/00000001.jsonl"),
        ("audit/00000001.jsonl", "grants.journal"),
        ("pinned/it", "pins/it.json"),
        ("cluster/logs/owed", "cluster/logs/logs"),
    ] {
        assert!(at(first) < at(then), "{first} before {then}");
    }
}

#[test]
fn damaged_backup_restores_nothing() {
    let dir = folder();
    let file = back_up_of(&dir);
    let intact = fs::read(&file).unwrap();
    let place = dir.path().join("again");
    let refused = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let why = restore(&file, &place, &mut || ()).unwrap_err().to_string();
        assert!(why.contains("is damaged"), "{why}");
        assert!(!place.exists());
        let names = fs::read_dir(dir.path()).unwrap();
        assert_eq!(names.count(), 2, "nothing is left");
    };
    for end in (0..intact.len() - 1024).step_by(509) {
        refused(&intact[..end]);
    }
    for at in (0..intact.len() - 1024).step_by(1021) {
        let mut flipped = intact.clone();
        flipped[at] ^= 1;
        // Padding and unused header fields may change.
        fs::write(&file, &flipped).unwrap();
        if restore(&file, &place, &mut || ()).is_ok() {
            let kept = fs::read(place.join("node.key")).unwrap();
            assert_eq!(kept, "node.key".repeat(100).as_bytes());
            fs::remove_dir_all(&place).unwrap();
        }
    }
    // Entries that lead out of the folder, and entries that are not regular files.
    for (name, kind) in [
        ("../outside", EntryType::Regular),
        ("/outside", EntryType::Regular),
        ("a/../../outside", EntryType::Regular),
        ("link", EntryType::Symlink),
        ("link", EntryType::Link),
        ("device", EntryType::Char),
        ("sparse", EntryType::GNUSparse),
    ] {
        let mut builder = Builder::new(Vec::new());
        let mut entry = tar_header(1);
        entry.set_entry_type(kind);
        entry.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        entry.set_cksum();
        builder.append(&entry, &b"x"[..]).unwrap();
        refused(&builder.into_inner().unwrap());
        assert!(!dir.path().join("outside").exists());
    }
}

#[test]
fn existing_files_are_not_overwritten() {
    let dir = folder();
    let (data, file) = (dir.path().join("data"), back_up_of(&dir));
    assert!(make(&data, &file).is_err(), "there is a file");
    assert!(matches!(
        restore(&file, &data, &mut || ()),
        Err(BackupError::InUse(_))
    ));
    let inside = data.join("backup.tar");
    let refused = make(&data, &inside);
    assert!(matches!(refused, Err(BackupError::InsideDataDir(_))) && !inside.exists());
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let refused = make(&empty, &dir.path().join("b.tar"));
    assert!(matches!(refused, Err(BackupError::NoFolder(_))));
    restore(&file, &empty, &mut || ()).unwrap();
    assert!(empty.join("node.key").exists());
}
