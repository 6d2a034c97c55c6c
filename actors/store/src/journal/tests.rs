use std::fs;
use std::io::Write;

use mgp_engine::store::journal::PAYLOAD_MAX;

use super::*;

fn texts(opened: &OpenedJournal) -> Vec<String> {
    let text = |entry: &Vec<u8>| String::from_utf8(entry.clone()).unwrap();
    opened.entries.iter().map(text).collect()
}

async fn with(path: &Path, entries: &[&str]) {
    let opened = Journal::open(path, "test").unwrap();
    for entry in entries {
        let entry = entry.as_bytes().to_vec();
        opened.journal.append(entry).await.unwrap();
    }
}

/// FED-001: one hundred concurrent appends share syncs and keep their order.
#[tokio::test]
async fn appended_entries_are_read_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.journal");
    let opened = Journal::open(&path, "test").unwrap();
    assert!(opened.entries.is_empty() && opened.torn_tail.is_none());
    let journal = &opened.journal;
    let all = (0..100).map(|n| journal.append(format!("{n}").into_bytes()));
    for done in futures_util::future::join_all(all).await {
        done.unwrap();
    }
    let reopened = Journal::open(&path, "test").unwrap();
    let expected: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    assert_eq!(texts(&reopened), expected);
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let long = journal.append(vec![0; PAYLOAD_MAX + 1]).await;
    assert!(matches!(long, Err(AppendError::TooLong(_))));
}

/// FED-002.
#[tokio::test]
async fn torn_tail_is_truncated_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.journal");
    with(&path, &["one", "two"]).await;
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let opened = Journal::open(&path, "test").unwrap();
    assert_eq!(texts(&opened), ["one"]);
    let cut = opened.torn_tail.unwrap();
    assert!(cut.contains("test.journal: from byte 75 on"), "{cut}");
    opened.journal.append(b"three".to_vec()).await.unwrap();
    let reopened = Journal::open(&path, "test").unwrap();
    assert_eq!(
        (texts(&reopened), reopened.torn_tail),
        (vec!["one".into(), "three".into()], None)
    );
}

/// FED-002.
#[tokio::test]
async fn damage_is_reported_and_the_file_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.journal");
    with(&path, &["one", "two"]).await;
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    let why = Journal::open(&path, "test").unwrap_err().to_string();
    assert!(why.contains("test.journal: entry 2, at byte 75"), "{why}");
    assert!(why.contains("truncate -s 75"), "{why}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[tokio::test]
async fn journal_appends_after_replacement() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.journal");
    fs::write(dir.path().join("test.new"), "half").unwrap();
    let opened = Journal::open(&path, "test").unwrap();
    for n in 0..3_u8 {
        opened.journal.append(vec![b'0' + n]).await.unwrap();
    }
    let kept = vec![b"kept".to_vec()];
    opened.journal.replace(kept).await.unwrap();
    opened.journal.append(b"later".to_vec()).await.unwrap();
    let reopened = Journal::open(&path, "test").unwrap();
    assert_eq!(texts(&reopened), ["kept", "later"]);
}

/// A disk failure is reported, and appends after the disk recovered are written.
#[tokio::test]
async fn journal_recovers_after_a_disk_failure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.journal");
    with(&path, &["one"]).await;
    let before = fs::read(&path).unwrap();
    let full = File::options().append(true).open("/dev/full").unwrap();
    let mut reader = JournalReader::new("test", &before);
    reader.by_ref().for_each(drop);
    let trouble = DiskHealth::default();
    let mut journal_file = JournalFile {
        path: path.clone(),
        kind: "test",
        file: full,
        writer: JournalWriter::resume(reader.head()),
        size: before.len() as u64,
        is_torn: false,
        health: trouble.clone(),
        entries: 0,
        witness: crate::witnesses::Witness::default(),
        witness_due: None,
    };
    let told = |journal_file: &mut JournalFile, entry: &[u8]| {
        let (told, mut outcome) = oneshot::channel();
        journal_file.write_group(&mut vec![(vec![entry.to_vec()], told)]);
        outcome.try_recv().unwrap()
    };
    let refused = told(&mut journal_file, b"two").unwrap_err().to_string();
    assert!(refused.contains("test.journal: No space left"), "{refused}");
    assert!(trouble.failure().unwrap().contains("free some space"));
    assert!(told(&mut journal_file, b"two").is_err());
    journal_file.probe_capacity();
    assert!(trouble.failure().is_some());
    let mut file = open(&path).unwrap();
    file.write_all(b"half of an entry").unwrap();
    journal_file.file = file;
    journal_file.probe_capacity();
    assert_eq!(
        (trouble.failure(), fs::read(&path).unwrap()),
        (None, before)
    );
    told(&mut journal_file, b"three").unwrap();
    let reopened = Journal::open(&path, "test").unwrap();
    assert_eq!(
        (texts(&reopened), reopened.torn_tail),
        (vec!["one".into(), "three".into()], None)
    );
}

/// What the audit log may know of is not cut off before it was asked.
#[tokio::test]
async fn torn_tail_stays_until_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.journal");
    with(&path, &["one", "two"]).await;
    let torn = fs::read(&path).unwrap();
    let torn = &torn[..torn.len() - 1];
    fs::write(&path, torn).unwrap();
    let opened = Journal::open(&path, "test").unwrap();
    assert!(opened.torn_tail.is_some());
    assert_eq!(fs::read(&path).unwrap(), torn);
    opened.journal.truncate_torn_tail().await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), &torn[..75]);
}

fn witnessed(folder: &Path) -> OpenedJournal {
    let witness = crate::witnesses::Witnesses::open(folder).unwrap().witnesses;
    let path = folder.join("test.journal");
    Journal::open_witnessed(&path, "test", witness.witness("test.journal")).unwrap()
}

/// Closes a journal, and waits until its thread has written the last witness.
async fn close(opened: OpenedJournal) {
    let trouble = opened.journal.health.clone();
    drop(opened);
    while trouble.is_shared() {
        tokio::task::yield_now().await;
    }
}

/// The last entry truncated completely or partly, the file emptied, removed, or replaced by an older copy: each is
/// reported at every start until the file is restored.
#[tokio::test]
async fn missing_entry_is_reported_until_restored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.journal");
    let first = witnessed(dir.path());
    assert_eq!(first.truncated, None, "a folder without witnesses opens");
    for entry in ["one", "two", "three"] {
        first.journal.append(entry.into()).await.unwrap();
    }
    let whole = fs::read(&path).unwrap();
    let two = witnessed(dir.path());
    assert_eq!((two.truncated, two.entries.len()), (None, 3));
    let cut = whole.len() - (72 + 5);
    for (bytes, found) in [(cut, Some(2)), (whole.len() - 1, Some(2)), (0, Some(0))] {
        fs::write(&path, &whole[..bytes]).unwrap();
        for _ in 0..2 {
            let shortened = witnessed(dir.path()).truncated.unwrap();
            assert_eq!(
                (shortened.actual_entries, shortened.expected_entries),
                (found, 3)
            );
            assert!(shortened.to_string().contains("has been shortened"));
        }
        // Appending does not repair it.
        let opened = witnessed(dir.path());
        let more = ["x", "y", "z"].map(|entry| entry.as_bytes().to_vec());
        opened.journal.append_all(more.into()).await.unwrap();
        assert!(witnessed(dir.path()).truncated.is_some());
    }
    fs::remove_file(&path).unwrap();
    let read = crate::witnesses::Witnesses::read(dir.path())
        .unwrap()
        .unwrap();
    let witness = read.witness("test.journal");
    let missing = Journal::compare(&path, "test", &witness).unwrap().unwrap();
    assert!(
        missing
            .to_string()
            .ends_with("is missing: it held 3 entries")
    );
    assert_eq!(witnessed(dir.path()).truncated, Some(missing));
    fs::write(&path, &whole).unwrap();
    assert_eq!(Journal::compare(&path, "test", &witness).unwrap(), None);
    assert_eq!(witnessed(dir.path()).truncated, None);
}

/// A kernel may end between any two writes: before and after a replacement, and between an append and the write of its
/// witness.
#[tokio::test]
async fn crash_between_journal_and_witness_is_not_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.journal");
    let names = crate::witnesses::WITNESS_FILES.map(|name| dir.path().join(name));
    let state = || {
        let witness = names.clone().map(|name| fs::read(name).unwrap());
        (fs::read(&path).unwrap(), witness)
    };
    let put = |journal: &[u8], witness: &[Vec<u8>; 2]| {
        fs::write(&path, journal).unwrap();
        for (name, bytes) in names.iter().zip(witness) {
            fs::write(name, bytes).unwrap();
        }
    };
    let opened = witnessed(dir.path());
    opened
        .journal
        .append_all(vec![b"one".to_vec(), b"two".to_vec()])
        .await
        .unwrap();
    let before = state();
    opened.journal.append(b"three".to_vec()).await.unwrap();
    let added = state();
    put(&added.0, &before.1);
    assert_eq!(
        witnessed(dir.path()).truncated,
        None,
        "added, and not witnessed"
    );
    put(&added.0, &added.1);
    opened
        .journal
        .replace(vec![b"four".to_vec()])
        .await
        .unwrap();
    let replaced = state();
    // The state after the new contents were proposed and before they were settled.
    let proposes = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("proposed");
    let proposed = [0, 1].map(|at| {
        if proposes(&replaced.1[at]) {
            replaced.1[at].clone()
        } else {
            added.1[at].clone()
        }
    });
    for journal in [&added.0, &replaced.0] {
        put(journal, &proposed);
        assert_eq!(
            witnessed(dir.path()).truncated,
            None,
            "while it was replaced"
        );
    }
    put(&added.0, &replaced.1);
    assert!(
        witnessed(dir.path()).truncated.is_some(),
        "the file before is not this one"
    );
}

/// Entries that share one sync, torn by a power cut before they were acknowledged: the journal opens and continues
/// after the last intact entry, with or without its witness.
#[tokio::test]
async fn journal_with_a_torn_group_opens_and_appends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.journal");
    let opened = witnessed(dir.path());
    for entry in ["one", "two"] {
        opened.journal.append(entry.into()).await.unwrap();
    }
    let before = fs::read(&path).unwrap().len();
    let names = crate::witnesses::WITNESS_FILES.map(|name| dir.path().join(name));
    let known = names.clone().map(|name| fs::read(name).unwrap());
    let more: Vec<Vec<u8>> = (b'a'..b'i').map(|byte| vec![byte; 400]).collect();
    opened.journal.append_all(more).await.unwrap();
    close(opened).await;
    let bytes = fs::read(&path).unwrap();
    for has_witness in [true, false] {
        for from in [before, 512, 1_024, 1_536] {
            let mut damaged = bytes.clone();
            damaged[from..(from / 512 + 1) * 512].fill(0);
            fs::write(&path, damaged).unwrap();
            for (name, known) in names.iter().zip(&known) {
                if has_witness {
                    fs::write(name, known).unwrap()
                } else {
                    fs::remove_file(name).unwrap()
                }
            }
            let opened = witnessed(dir.path());
            assert!(opened.torn_tail.is_some() && opened.truncated.is_none());
            assert_eq!(opened.entries[..2], [b"one".to_vec(), b"two".to_vec()]);
            let whole = opened.entries.len();
            opened.journal.append(b"three".to_vec()).await.unwrap();
            let reopened = witnessed(dir.path());
            assert_eq!((&reopened.torn_tail, &reopened.truncated), (&None, &None));
            assert_eq!(
                (reopened.entries.len(), &*reopened.entries[whole]),
                (whole + 1, &b"three"[..])
            );
            close(opened).await;
            close(reopened).await;
        }
    }
}

/// A hole in an acknowledged group is damage, and nothing is truncated.
#[tokio::test]
async fn damaged_acknowledged_group_prevents_opening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.journal");
    let opened = witnessed(dir.path());
    let more: Vec<Vec<u8>> = (b'a'..b'i').map(|byte| vec![byte; 400]).collect();
    opened.journal.append_all(more).await.unwrap();
    close(opened).await;
    let mut damaged = fs::read(&path).unwrap();
    damaged[1_024..1_536].fill(0);
    fs::write(&path, &damaged).unwrap();
    let witness = crate::witnesses::Witnesses::open(dir.path())
        .unwrap()
        .witnesses;
    let opened = Journal::open_witnessed(&path, "test", witness.witness("test.journal"));
    let why = opened.unwrap_err().to_string();
    assert!(why.contains("entry 3"), "{why}");
    assert_eq!(fs::read(&path).unwrap(), damaged);
}
