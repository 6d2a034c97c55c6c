//! What no file may say, and how long it may be.

use crate::workspace::sources;

/// The words of unfinished work, and names that say nothing, stand nowhere.
#[test]
fn no_file_says_what_it_should_not() {
    let unfinished = [
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("#[ig", "nore"),
    ];
    let empty_names = [
        "Manager", "Service", "Helper", "Util", "Impl", "Data", "Info",
    ];
    let machine = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    let naps = [concat!("thread::", "sleep"), concat!("time::", "sleep")];
    // A call that waits for its client is suspended; a server that restarted too often is parked.
    let wrong = [concat!("parked", " call"), concat!("parks the", " call")];
    for (file, text) in sources() {
        for word in unfinished.iter().chain(&machine).chain(&wrong) {
            assert!(!text.contains(word), "{file} says {word}");
        }
        let test = file.starts_with("tests/tests/");
        assert!(
            !test || !naps.iter().any(|nap| text.contains(nap)),
            "{file} sleeps"
        );
        assert!(
            text.lines().count() <= 900,
            "{file} is too long for one noun"
        );
        for line in text.lines().filter(|l| !l.trim_start().starts_with("//")) {
            let Some(name) = ["struct ", "enum ", "trait "].into_iter().find_map(|word| {
                line.trim_start()
                    .trim_start_matches("pub ")
                    .strip_prefix(word)
            }) else {
                continue;
            };
            let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap();
            for empty in empty_names {
                assert!(
                    !name.ends_with(empty) || name.len() == empty.len(),
                    "{file}: {name}"
                );
            }
        }
    }
}

/// The functions that start a task by a name; `mgp status --tree` shows it.
const STARTERS: [&str; 7] = [
    "supervised",
    "detached",
    "blocking",
    "catch_panic",
    "catch_panic_sync",
    "start_child",
    "start_permanent",
];

/// The name of a task is its owner and what it does: `permissions.expiry`.
#[test]
fn tasks_are_named_by_their_owner_and_what_they_do() {
    let mut names = 0;
    for (file, text) in sources() {
        let tests = file.contains("tests") || file == "actors/runtime/src/task_supervisor.rs";
        if tests || !file.starts_with("actors/") && !file.starts_with("kernel/src/") {
            continue;
        }
        for name in task_names(&text) {
            assert!(is_owner_and_work(name), "{file}: {name:?}");
            names += 1;
        }
    }
    assert!(names > 50, "only {names} names of tasks were found");
}

#[test]
fn a_name_of_a_task_is_found_on_the_next_line_too() {
    let text = "fn f() { task::supervised(\n    \"life of it\", f);\n task::catch_panic(\"a.b\", g) }\n\
                #[cfg(test)]\nmod tests { supervised(\"held\", f) }";
    let names = task_names(text);
    assert_eq!(names, ["life of it", "a.b"]);
    assert!(!is_owner_and_work(names[0]) && is_owner_and_work(names[1]));
}

/// The literal names that a file gives to tasks, without those of its tests.
fn task_names(text: &str) -> Vec<&str> {
    let code = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or(text);
    let calls = code.match_indices('(').filter_map(|(at, _)| {
        let starts = STARTERS.iter().any(|name| code[..at].ends_with(name));
        let argument = code[at + 1..].trim_start().strip_prefix('"')?;
        starts.then(|| argument.split('"').next().unwrap_or(argument))
    });
    calls.collect()
}

fn is_owner_and_work(name: &str) -> bool {
    let word =
        |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    name.contains('.') && name.split('.').all(word)
}
