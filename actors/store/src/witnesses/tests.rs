use std::fs;

use super::*;

fn opened(folder: &Path) -> Witnesses {
    let opened = Witnesses::open(folder).unwrap();
    assert_eq!(opened.faults, Vec::<String>::new());
    opened.witnesses
}

fn settled(folder: &Path, name: &str) -> Option<String> {
    let read = Witnesses::read(folder).unwrap()?;
    read.witness(name).contents()?.settled
}

#[test]
fn witness_is_read_back_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Witnesses::read(dir.path()).unwrap().is_none());
    assert!(Witnesses::open(dir.path()).unwrap().is_new);
    let witnesses = opened(dir.path());
    let grants = witnesses.witness("grants.journal");
    for n in 0..9 {
        grants.settle(&format!("{n} x"));
        witnesses.witness("shares.json").settle_presence();
        assert_eq!(
            settled(dir.path(), "grants.journal"),
            Some(format!("{n} x"))
        );
    }
    grants.propose("1 y").unwrap();
    let both = Some(WitnessedContents {
        settled: Some("8 x".into()),
        proposed: Some("1 y".into()),
    });
    let reopened = opened(dir.path());
    assert_eq!(reopened.witness("grants.journal").contents(), both);
    assert_eq!(reopened.records_with_prefix("shares.").len(), 1);
    reopened.witness("grants.journal").forget().unwrap();
    assert_eq!(settled(dir.path(), "grants.journal"), None);
    assert_eq!(settled(dir.path(), "shares.json"), Some(PRESENT.into()));
}

/// A change is one write of one sector in one of the two files.
#[test]
fn change_writes_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let witness = opened(dir.path()).witness("grants.journal");
    witness.settle("1 x");
    let read = || WITNESS_FILES.map(|name| fs::read(dir.path().join(name)).unwrap());
    let before = read();
    witness.settle("2 y");
    let after = read();
    let changed = (0..2).filter(|file| before[*file] != after[*file]).count();
    assert_eq!(changed, 1);
    assert_eq!(after.map(|bytes| bytes.len()), [2 * SLOT; 2]);
}

/// Damage or loss of one file is reported from the other, which has the current or the previous record.
#[test]
fn lost_witness_file_is_reported_and_recreated() {
    for (lost, how) in [
        (0, "removed"),
        (1, "removed"),
        (0, "emptied"),
        (1, "emptied"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let witnesses = opened(dir.path());
        witnesses.witness("shares.json").settle_presence();
        let grants = witnesses.witness("grants.journal");
        for n in 0..5 {
            grants.settle(&format!("{n} x"));
        }
        let path = dir.path().join(WITNESS_FILES[lost]);
        match how {
            "removed" => fs::remove_file(&path).unwrap(),
            _ => fs::write(&path, "").unwrap(),
        }
        let found = Witnesses::open(dir.path()).unwrap();
        assert!(!found.is_new);
        assert!(
            found.faults[0].contains("is missing or empty"),
            "{:?}",
            found.faults
        );
        assert_eq!(settled(dir.path(), "shares.json"), Some(PRESENT.into()));
        let last = settled(dir.path(), "grants.journal").unwrap();
        assert!(last == "4 x" || last == "3 x", "{last}");
        opened(dir.path());
    }
}

/// A synced record survives the loss of either file; one that changed since is in one of them.
#[test]
fn synced_record_is_in_both_files() {
    for lost in WITNESS_FILES {
        for changes in 1..5 {
            let dir = tempfile::tempdir().unwrap();
            let witnesses = opened(dir.path());
            let [grants, owed] = ["grants.journal", "owed"].map(|name| witnesses.witness(name));
            for n in 1..=changes {
                grants.settle(&format!("{n} x"));
                owed.settle(&format!("{n} y"));
                owed.settle(&format!("{n} z"));
            }
            grants.sync().unwrap();
            let left = tempfile::tempdir().unwrap();
            for name in WITNESS_FILES.into_iter().filter(|name| *name != lost) {
                fs::copy(dir.path().join(name), left.path().join(name)).unwrap();
            }
            let last = |name| settled(left.path(), name);
            assert_eq!(last("grants.journal"), Some(format!("{changes} x")));
            assert_eq!(last("owed"), Some(format!("{changes} z")));
            let read = || WITNESS_FILES.map(|name| fs::read(dir.path().join(name)).unwrap());
            assert!(read()[0] == read()[1]);
            grants.settle("later");
            grants.settle("latest");
            assert!(
                read()[0] != read()[1],
                "one of two writings has to be on disk"
            );
        }
    }
}

/// A start that was interrupted while creating the files is not reported at the next one.
#[test]
fn interrupted_first_start_is_not_reported() {
    let dir = tempfile::tempdir().unwrap();
    drop(opened(dir.path()));
    fs::remove_file(dir.path().join(WITNESS_FILES[1])).unwrap();
    let found = Witnesses::open(dir.path()).unwrap();
    assert!(found.is_new && found.faults.is_empty());
}

/// An interrupted write leaves the previous record.
#[test]
fn torn_record_leaves_the_previous_one() {
    let dir = tempfile::tempdir().unwrap();
    let witness = opened(dir.path()).witness("grants.journal");
    for n in 0..4 {
        witness.settle(&format!("{n} x"));
    }
    for name in WITNESS_FILES {
        let path = dir.path().join(name);
        let intact = fs::read(&path).unwrap();
        let mut torn = intact.clone();
        torn[SLOT + 40..SLOT + 60].fill(0);
        fs::write(&path, torn).unwrap();
        let last = settled(dir.path(), "grants.journal").unwrap();
        assert!(last == "3 x" || last == "2 x", "{last}");
        opened(dir.path());
        fs::write(&path, intact).unwrap();
    }
}

#[test]
fn accepted_file_is_reported_once_and_has_no_witness() {
    let dir = tempfile::tempdir().unwrap();
    let witnesses = opened(dir.path());
    witnesses.witness("shares.json").settle_presence();
    assert!(!witnesses.accept("x", &["x".into()]).unwrap());
    assert!(
        witnesses
            .accept("shares.json", &["shares.json".into()])
            .unwrap()
    );
    let reopened = opened(dir.path());
    assert_eq!(reopened.witness("shares.json").contents(), None);
    assert_eq!(reopened.take_accepted(), ["shares.json"]);
    assert_eq!(opened(dir.path()).take_accepted(), Vec::<String>::new());
}

/// Slots of ended records are reused; beyond the limit a file has no witness, and nothing else fails.
#[test]
fn record_count_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let witnesses = opened(dir.path());
    for n in 0..SLOTS_MAX + 3 {
        witnesses.witness(format!("{n}")).settle_presence();
    }
    assert!(witnesses.witness("0").contents().is_some());
    assert_eq!(witnesses.witness(format!("{SLOTS_MAX}")).contents(), None);
    witnesses.witness("7").forget().unwrap();
    witnesses.witness("new").settle_presence();
    assert_eq!(settled(dir.path(), "new"), Some(PRESENT.into()));
    assert_eq!(settled(dir.path(), "7"), None);
}
