//! Names: the field's words, and no dialect.

use crate::workspace::{Sources, sources};

/// Words that are no name of a function or a file by themselves: prepositions, participles, adverbs, auxiliaries.
const NO_NAMES: [&str; 77] = [
    "after", "again", "allowed", "always", "any", "asked", "at", "before", "behind", "beside",
    "between", "both", "brought", "by", "can", "come", "comes", "does", "done", "down", "found",
    "gets", "given", "gives", "goes", "going", "gone", "got", "have", "heard", "held", "here",
    "how", "is", "kept", "known", "left", "lost", "made", "makes", "may", "meant", "met", "must",
    "never", "of", "off", "on", "once", "one", "only", "out", "over", "passed", "refused", "said",
    "says", "seen", "sent", "shown", "since", "standing", "stands", "still", "taken", "takes",
    "tells", "then", "there", "told", "under", "until", "up", "waiting", "why", "with", "within",
];
/// First words of types that are no nouns.
const NO_NOUNS: [&str; 11] = [
    "Told", "Kept", "Found", "Held", "Said", "Seen", "Shown", "Own", "Given", "Known", "Not",
];
/// Types that say nothing at all.
const NO_TYPES: [&str; 5] = ["Who", "Why", "How", "Me", "Thing"];
/// Names that stand all the same, and why: the file, the name.
const ALLOWED: &[(&str, &str)] = &[
    // A command's own word.
    ("kernel/src/cli/args/up.rs", "up"),
    ("kernel/src/cli/commands/up.rs", "up"),
];

/// LANGUAGE: functions, types and files have names that a reader of the field can look up.
#[test]
fn names_are_words_of_the_field() {
    let found = offences(&sources());
    let allowed =
        |(file, name): &(String, String)| ALLOWED.contains(&(file.as_str(), name.as_str()));
    let strays: Vec<_> = found.iter().filter(|offence| !allowed(offence)).collect();
    assert!(strays.is_empty(), "{strays:#?}");
    for (file, name) in ALLOWED {
        let offence = ((*file).to_owned(), (*name).to_owned());
        assert!(found.contains(&offence), "{file} has no {name}");
    }
}

#[test]
fn a_planted_word_is_found() {
    let planted = |file: &str, text: &str| {
        let sources = Sources::from([(file.to_owned(), text.to_owned())]);
        let found = offences(&sources).into_iter().map(|(_, name)| name);
        found.collect::<Vec<_>>()
    };
    let file = "kernel/engine/src/x.rs";
    assert_eq!(
        planted(file, "impl X {\n    pub(crate) async fn told(&self) {}"),
        ["told"]
    );
    assert_eq!(planted(file, "fn of<T>(t: T) {}"), ["of"]);
    assert_eq!(
        planted(file, "pub(crate) struct ToldEntry;\nenum Who { A }"),
        ["ToldEntry", "Who"]
    );
    assert_eq!(planted("a/src/held.rs", ""), ["held"]);
    assert!(
        planted(
            file,
            "// fn told()\nfn told_twice() {}\nstruct Notify;\nstruct Tolden;"
        )
        .is_empty()
    );
    assert!(planted(file, "#[cfg(test)]\nmod tests { fn told() {} }").is_empty());
    assert!(planted("a/src/x/tests.rs", "fn told() {}").is_empty());
}

/// The names outside of tests that are no names, each with its file.
fn offences(sources: &Sources) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (file, text) in sources {
        let stem = file
            .rsplit('/')
            .next()
            .unwrap_or(file)
            .trim_end_matches(".rs");
        if file
            .split('/')
            .any(|part| ["tests", "testing", "benches", "tests.rs"].contains(&part))
        {
            continue;
        }
        let code = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or(text);
        let mut offend = |name: &str| found.push((file.clone(), name.to_owned()));
        if NO_NAMES.contains(&stem) {
            offend(stem);
        }
        for line in code
            .lines()
            .map(str::trim_start)
            .filter(|line| !line.starts_with("//"))
        {
            let mut words = line.split_whitespace();
            let Some(keyword) =
                words.find(|word| ["fn", "struct", "enum", "trait", "type"].contains(word))
            else {
                continue;
            };
            let name = words.next().unwrap_or_default();
            let name = name
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap_or_default();
            let is_wrong = match keyword {
                "fn" => NO_NAMES.contains(&name),
                _ => {
                    NO_TYPES.contains(&name)
                        || NO_NOUNS.iter().any(|word| first_word(name) == *word)
                }
            };
            if is_wrong {
                offend(name);
            }
        }
    }
    found
}

fn first_word(name: &str) -> &str {
    let end = name.char_indices().skip(1).find(|(_, c)| !c.is_lowercase());
    &name[..end.map_or(name.len(), |(at, _)| at)]
}
