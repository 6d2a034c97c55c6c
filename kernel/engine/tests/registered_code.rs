//! The corpora: attacks that `standard` refuses, escapes that it does not and `strict` does, those beyond
//! it, look-alikes that `standard` lets pass, and honest programs that pass as the code of a registered
//! server. Pieces are parted by a line of `---`.

#![allow(clippy::unwrap_used)]

use mgp_engine::tools::registration::{check_code, strict_floor};
use mgp_screening::code_safety::{
    CodePolicy, CodeRule, Declaration, Floor, Level, Rejection, check,
};

type Corpus = [(&'static str, &'static str); 2];

macro_rules! corpus {
    ($name:literal) => {
        [
            (
                "python",
                include_str!(concat!(
                    "../../../tests/corpus/code_safety/",
                    $name,
                    ".py.txt"
                )),
            ),
            (
                "javascript",
                include_str!(concat!(
                    "../../../tests/corpus/code_safety/",
                    $name,
                    ".js.txt"
                )),
            ),
        ]
    };
}

const ATTACKS: Corpus = corpus!("attacks");
const ESCAPES: Corpus = corpus!("escapes");
const BEYOND: Corpus = corpus!("beyond");
const HARMLESS: Corpus = corpus!("harmless");
const HONEST: Corpus = corpus!("honest");

type Judged = Vec<(&'static str, Result<(), Box<Rejection>>)>;

fn pieces(corpus: Corpus) -> impl Iterator<Item = (&'static str, &'static str)> {
    corpus.into_iter().flat_map(|(language, pieces)| {
        let pieces = pieces.trim_end().split("\n---\n");
        pieces.map(move |piece| (language, piece))
    })
}

fn judged(corpus: Corpus, level: Level) -> Judged {
    let declared = |language: &str| Declaration {
        language: Some(language.to_owned()),
        level: Some(level),
        ..Declaration::default()
    };
    // As much may be imported as a registered server may, so that no import is what an escape fails at.
    let floor = Floor {
        level,
        ..strict_floor()
    };
    let judge = |(language, code)| {
        (
            code,
            check(&CodePolicy::new(&declared(language), &floor), code),
        )
    };
    pieces(corpus).map(judge).collect()
}

/// Those that pass, or are refused for nothing but that they cannot be read.
fn missed(judged: &Judged) -> Vec<&'static str> {
    let unread = |r: &Rejection| {
        let unread = [CodeRule::Syntax, CodeRule::TooComplex, CodeRule::TooLarge];
        r.findings.iter().all(|f| unread.contains(&f.rule))
    };
    let missed = judged
        .iter()
        .filter(|(_, v)| v.as_ref().err().is_none_or(|r| unread(r)));
    missed.map(|(code, _)| *code).collect()
}

fn alarms(judged: &Judged) -> Vec<String> {
    let refused = judged
        .iter()
        .filter_map(|(code, v)| Some((code, v.as_ref().err()?)));
    let told = refused.map(|(code, r)| format!("{:?}\n{code}\n", r.findings));
    told.collect()
}

/// MGP-104, MGP-106: no attack of the corpus passes, and no look-alike is refused.
#[test]
fn the_corpus_has_no_miss_and_no_false_alarm() {
    let (attacks, harmless) = (
        judged(ATTACKS, Level::Standard),
        judged(HARMLESS, Level::Standard),
    );
    // Each language has one piece that is no sentence of it.
    let missed = missed(&attacks);
    assert_eq!(missed, ["(", "const {"], "{}", missed.join("\n---\n"));
    let alarms = alarms(&harmless);
    assert!(alarms.is_empty(), "{}", alarms.join("\n"));
    assert!(attacks.len() > 120 && harmless.len() > 80);
}

/// MGP-107: strict is a lint: it finds the ways around that are written out, and says where.
#[test]
fn strict_finds_the_escapes_that_are_written_out() {
    let escapes = judged(ESCAPES, Level::Strict);
    let escaped = missed(&escapes);
    assert!(escaped.is_empty(), "escaped:\n{}", escaped.join("\n---\n"));
    let attacks = judged(ATTACKS, Level::Strict);
    assert_eq!(missed(&attacks), ["(", "const {"]);
    assert!(escapes.len() >= 200, "{}", escapes.len());
    for (code, verdict) in escapes.iter().chain(&attacks) {
        let findings = verdict.as_ref().err().map(|r| &r.findings);
        for finding in findings.into_iter().flatten() {
            assert!(
                !finding.hint.is_empty() && finding.line >= 1,
                "{code}: {finding:?}"
            );
        }
    }
}

/// MGP-107: what is beyond a lint is known, and passes; what it finds after all belongs to the escapes.
#[test]
fn strict_is_no_boundary() {
    let beyond = judged(BEYOND, Level::Strict);
    let found = alarms(&beyond);
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(beyond.len() >= 40, "{}", beyond.len());
}

/// MGP-107: what agents write passes as the code of a registered server.
#[test]
fn honest_servers_pass_strict() {
    let honest = pieces(HONEST).map(|(language, code)| {
        let floor = strict_floor();
        (code, check_code(language, code, &floor))
    });
    let honest: Judged = honest.collect();
    let alarms = alarms(&honest);
    assert!(alarms.is_empty(), "{}", alarms.join("\n"));
    assert!(honest.len() >= 40, "{}", honest.len());
}
