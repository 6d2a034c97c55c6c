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

/// FED-001: one hundred at once share syncs and stand in the order they were asked for.
#[tokio::test]
async fn what_was_appended_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.journal");
    let opened = Journal::open(&path, "test").unwrap();
    assert!(opened.entries.is_empty() && opened.cut.is_none());
    let journal = &opened.journal;
    let all = (0..100).map(|n| journal.append(format!("{n}").into_bytes()));
    for done in futures_util::future::join_all(all).await {
        done.unwrap();
    }
    let again = Journal::open(&path, "test").unwrap();
    let expected: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    assert_eq!(texts(&again), expected);
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let long = journal.append(vec![0; PAYLOAD_MAX + 1]).await;
    assert!(matches!(long, Err(NotAppended::TooLong(_))));
}

/// FED-002.
#[tokio::test]
async fn a_torn_tail_is_cut_off_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.journal");
    with(&path, &["one", "two"]).await;
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let opened = Journal::open(&path, "test").unwrap();
    assert_eq!(texts(&opened), ["one"]);
    let cut = opened.cut.unwrap();
    assert!(cut.contains("test.journal: from byte 75 on"), "{cut}");
    opened.journal.append(b"three".to_vec()).await.unwrap();
    let again = Journal::open(&path, "test").unwrap();
    assert_eq!(
        (texts(&again), again.cut),
        (vec!["one".into(), "three".into()], None)
    );
}

/// FED-002.
#[tokio::test]
async fn damage_is_named_and_nothing_is_changed() {
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
async fn a_replacement_is_whole_and_goes_on() {
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
    let again = Journal::open(&path, "test").unwrap();
    assert_eq!(texts(&again), ["kept", "later"]);
}

/// A disk that fails is said to, and what comes after it takes something again is written.
#[tokio::test]
async fn after_a_failure_it_goes_on_when_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.journal");
    with(&path, &["one"]).await;
    let before = fs::read(&path).unwrap();
    let full = File::options().append(true).open("/dev/full").unwrap();
    let mut reader = JournalReader::new("test", &before);
    reader.by_ref().for_each(drop);
    let trouble = Trouble::default();
    let mut journal_file = JournalFile {
        path: path.clone(),
        kind: "test",
        file: full,
        writer: JournalWriter::after(reader.head()),
        size: before.len() as u64,
        torn: false,
        trouble: trouble.clone(),
    };
    let told = |journal_file: &mut JournalFile, entry: &[u8]| {
        let (told, mut outcome) = oneshot::channel();
        journal_file.write(&mut vec![(vec![entry.to_vec()], told)]);
        outcome.try_recv().unwrap()
    };
    let refused = told(&mut journal_file, b"two").unwrap_err().to_string();
    assert!(refused.contains("test.journal: No space left"), "{refused}");
    assert!(trouble.why().unwrap().contains("free some space"));
    assert!(told(&mut journal_file, b"two").is_err());
    journal_file.probe();
    assert!(trouble.why().is_some());
    let mut file = open(&path).unwrap();
    file.write_all(b"half of an entry").unwrap();
    journal_file.file = file;
    journal_file.probe();
    assert_eq!((trouble.why(), fs::read(&path).unwrap()), (None, before));
    told(&mut journal_file, b"three").unwrap();
    let again = Journal::open(&path, "test").unwrap();
    assert_eq!(
        (texts(&again), again.cut),
        (vec!["one".into(), "three".into()], None)
    );
}

/// What the audit log may know of is not cut off before it was asked.
#[tokio::test]
async fn what_was_never_finished_is_there_until_it_is_mended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.journal");
    with(&path, &["one", "two"]).await;
    let torn = fs::read(&path).unwrap();
    let torn = &torn[..torn.len() - 1];
    fs::write(&path, torn).unwrap();
    let opened = Journal::open(&path, "test").unwrap();
    assert!(opened.cut.is_some());
    assert_eq!(fs::read(&path).unwrap(), torn);
    opened.journal.mend().await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), &torn[..75]);
}
