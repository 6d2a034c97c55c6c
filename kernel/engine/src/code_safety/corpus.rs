//! The corpus of attacks and of harmless look-alikes, at `standard`. Pieces are parted by a line of `---`.

use super::*;

const ATTACKS: [(&str, &str); 2] = [
    (
        "python",
        include_str!("../../../../tests/corpus/code_safety/attacks.py.txt"),
    ),
    (
        "javascript",
        include_str!("../../../../tests/corpus/code_safety/attacks.js.txt"),
    ),
];
const HARMLESS: [(&str, &str); 2] = [
    (
        "python",
        include_str!("../../../../tests/corpus/code_safety/harmless.py.txt"),
    ),
    (
        "javascript",
        include_str!("../../../../tests/corpus/code_safety/harmless.js.txt"),
    ),
];

fn judged(corpus: [(&str, &'static str); 2]) -> Vec<(&'static str, Result<(), Box<Rejection>>)> {
    let mut out = Vec::new();
    for (language, pieces) in corpus {
        let declared = Declaration {
            language: Some(language.to_owned()),
            level: Some(Level::Standard),
            ..Declaration::default()
        };
        let policy = Policy::new(&declared, &Floor::default());
        out.extend(
            pieces
                .split("\n---\n")
                .map(|code| (code, judge(&policy, code))),
        );
    }
    out
}

/// MGP-104, MGP-106: no attack of the corpus passes, and no look-alike is refused.
#[test]
fn the_corpus_has_no_miss_and_no_false_alarm() {
    let (attacks, harmless) = (judged(ATTACKS), judged(HARMLESS));
    let missed: Vec<_> = attacks.iter().filter(|(_, v)| v.is_ok()).collect();
    let alarms: Vec<_> = harmless.iter().filter(|(_, v)| v.is_err()).collect();
    for (code, _) in &missed {
        println!("MISSED:\n{code}\n");
    }
    for (code, verdict) in &alarms {
        println!("FALSE ALARM: {verdict:?}\n{code}\n");
    }
    let unread = |(_, verdict): &&(&str, Result<(), Box<Rejection>>)| {
        let only = |r: &Rejection| {
            r.findings
                .iter()
                .all(|f| [Rule::Syntax, Rule::TooComplex].contains(&f.rule))
        };
        verdict.as_ref().is_err_and(|r| only(r))
    };
    for (code, verdict) in attacks.iter().filter(unread) {
        println!("ONLY UNREAD: {verdict:?}\n{code}\n");
    }
    println!("{} attacks, {} missed", attacks.len(), missed.len());
    println!(
        "{} look-alikes, {} false alarms",
        harmless.len(),
        alarms.len()
    );
    assert!(attacks.len() > 150 && harmless.len() > 80);
    // Each language has one piece that is no sentence of it; no other may be refused for that alone.
    assert_eq!(attacks.iter().filter(unread).count(), 2);
    assert!(missed.is_empty() && alarms.is_empty());
}
