//! Reasons for mutants that no test catches: `reasons.txt`, a line for each mutant.

use std::fs;

use super::workspace;

const FILE: &str = "xtask/src/mutants/reasons.txt";

/// Lines of the form `file: mutant: reason`. Each counts for one mutant.
#[derive(Clone)]
pub(crate) struct Reasons(Vec<String>);

impl Reasons {
    pub(crate) fn load() -> Result<Self, String> {
        let path = workspace().join(FILE);
        let text = fs::read_to_string(&path).map_err(|error| format!("{FILE}: {error}"))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(lines.map(str::to_owned).collect())
    }

    /// Takes the reason of this mutant, if it has one.
    pub(crate) fn take_reason(&mut self, mutant: &str) -> bool {
        let (file, what) = split(mutant);
        let prefix = format!("{file}: {what}: ");
        let found = self.0.iter().position(|line| line.starts_with(&prefix));
        found.map(|at| self.0.remove(at)).is_some()
    }

    /// The remaining reasons for this file: of caught or removed mutants.
    pub(crate) fn unused_for_file<'a>(&'a self, file: &'a str) -> impl Iterator<Item = &'a str> {
        let lines = self.0.iter().map(String::as_str);
        lines.filter(move |line| line.split_once(": ").is_some_and(|(of, _)| of == file))
    }
}

/// The file and the description of a mutant, without line and column, which change: `file:line:column: what`.
fn split(mutant: &str) -> (&str, &str) {
    let (file, rest) = mutant.split_once(':').unwrap_or((mutant, ""));
    let (_, what) = rest.split_once(": ").unwrap_or(("", rest));
    (file, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUTANT: &str = "src/a.rs:25:9: replace A::b -> Vec<B> with vec![]";

    #[test]
    fn a_reason_counts_for_one_mutant_on_any_line() {
        let text = "# why\n\nsrc/a.rs: replace A::b -> Vec<B> with vec![]: it is empty: always\n";
        let mut reasons = Reasons::parse(text);
        assert!(reasons.take_reason(MUTANT));
        assert!(!reasons.take_reason(MUTANT), "it is used up");
        let mut reasons = Reasons::parse(text);
        assert!(!reasons.take_reason("src/b.rs:25:9: replace A::b -> Vec<B> with vec![]"));
        assert!(!reasons.take_reason("src/a.rs:25:9: replace A::b -> Vec<B> with vec![B]"));
        assert_eq!(reasons.unused_for_file("src/a.rs").count(), 1);
        assert_eq!(reasons.unused_for_file("src/b.rs").count(), 0);
    }

    #[test]
    fn an_empty_reason_does_not_count() {
        let line = "src/a.rs: replace A::b -> Vec<B> with vec![]";
        assert!(!Reasons::parse(line).take_reason(MUTANT));
    }

    /// A reason must belong to a file in a batch.
    #[test]
    fn every_reason_is_for_a_file_that_exists() {
        for line in Reasons::load().unwrap().0 {
            let (file, _) = line.split_once(": ").unwrap();
            assert!(workspace().join(file).is_file(), "{file}");
        }
    }
}
