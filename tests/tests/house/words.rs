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
    for (file, text) in sources() {
        for word in unfinished.iter().chain(&machine) {
            assert!(!text.contains(word), "{file} says {word}");
        }
        let test = file.starts_with("tests/tests/");
        assert!(
            !test || !naps.iter().any(|nap| text.contains(nap)),
            "{file} sleeps"
        );
        assert!(
            text.lines().count() <= 600,
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
