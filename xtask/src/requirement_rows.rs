//! Finds the requirement rows of `docs/requirements/` that are covered by tests: their ids are in the doc lines of
//! tests.

mod ids;
mod sources;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::{fmt, fs, io};

use serde_json::json;

/// A requirement, and the tests that name it.
struct Row {
    id: String,
    requirement: String,
    section: String,
    tests: Vec<String>,
}

/// Prints the rows that no test names.
pub(crate) fn list(as_json: bool) -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let rows = match read_rows(&root) {
        Ok(rows) => Rows(rows),
        Err(error) => {
            eprintln!("the rows cannot be read: {error}");
            return ExitCode::from(2);
        }
    };
    if as_json {
        println!("{:#}", rows.to_json());
    } else {
        print!("{rows}");
    }
    ExitCode::from(u8::from(rows.missing().next().is_some()))
}

struct Rows(Vec<Row>);

impl Rows {
    fn missing(&self) -> impl Iterator<Item = &Row> {
        self.0.iter().filter(|row| row.tests.is_empty())
    }

    fn to_json(&self) -> serde_json::Value {
        let rows = self.0.iter().map(|row| {
            json!({
                "id": row.id,
                "requirement": row.requirement,
                "section": row.section,
                "missing": row.tests.is_empty(),
                "tests": row.tests,
            })
        });
        json!({ "rows": rows.collect::<Vec<_>>(), "missing": self.missing().count() })
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in self.missing() {
            writeln!(f, "{}  missing  {}", row.id, row.requirement)?;
        }
        let (all, missing) = (self.0.len(), self.missing().count());
        writeln!(
            f,
            "{all} rows, {} with a test, {missing} without",
            all - missing
        )
    }
}

fn read_rows(root: &Path) -> io::Result<Vec<Row>> {
    let mut proofs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for doc_line in sources::doc_lines(root)? {
        for id in ids::parse_ids(&doc_line.text) {
            let tests = proofs.entry(id).or_default();
            if !tests.contains(&doc_line.test) {
                tests.push(doc_line.test.clone());
            }
        }
    }
    let mut rows = Vec::new();
    for page in sources::files(&root.join("docs/requirements"), "md")? {
        rows.extend(fs::read_to_string(page)?.lines().filter_map(parse_row));
    }
    for row in &mut rows {
        row.tests = proofs.remove(&row.id).unwrap_or_default();
    }
    Ok(rows)
}

/// A table line whose first cell is the id of a requirement.
fn parse_row(line: &str) -> Option<Row> {
    let line = line.replace(r"\|", "\0");
    let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
    let id = cells.next().filter(|id| ids::parse_ids(id) == [*id])?;
    let mut text = || cells.next().map(|cell| cell.replace('\0', "|"));
    Some(Row {
        id: id.to_owned(),
        requirement: text()?,
        section: text()?,
        tests: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_table_line_that_begins_with_an_id() {
        let read = parse_row(r"| MGP-049 | `risk_level`: `safe`\|`moderate` | 4.3 |").unwrap();
        assert_eq!(read.id, "MGP-049");
        assert_eq!(read.requirement, "`risk_level`: `safe`|`moderate`");
        assert_eq!(read.section, "4.3");
        for other in [
            "| Id | Requirement | Section |",
            "|---|---|---|",
            "",
            "| A-02 | versions | text |",
        ] {
            assert!(parse_row(other).is_none(), "{other}");
        }
    }
}
