//! Code of either language is judged to the end, at every level.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_screening::code_safety::{CodePolicy, Declaration, Floor, Level, check};

fuzz_target!(|input: (bool, &str)| {
    let (python, code) = input;
    let language = if python { "python" } else { "javascript" };
    for level in [Level::Standard, Level::Strict] {
        let declared = Declaration {
            level: Some(level),
            language: Some(language.into()),
            ..Declaration::default()
        };
        let _ = check(&CodePolicy::new(&declared, &Floor::default()), code);
    }
});
