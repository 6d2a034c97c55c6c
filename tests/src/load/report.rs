//! Tables, for people as Markdown and for programs as JSON.

use std::fmt::{self, Display};

use serde_json::{Map, Value, json};

/// One field of a table.
#[derive(Debug, Clone)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A measure, shown with so many decimals.
    Number(f64, usize),
    /// Not measured, or it makes no sense here.
    Nothing,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&text.replace('|', "\\|")),
            Self::Number(number, decimals) => write!(f, "{number:.decimals$}"),
            Self::Nothing => f.write_str("-"),
        }
    }
}

impl Cell {
    fn to_json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Number(number, _) => json!(number),
            Self::Nothing => Value::Null,
        }
    }
}

/// Rows of one kind.
#[derive(Debug, Clone)]
pub struct Table {
    /// What it shows.
    pub title: &'static str,
    /// The heads of its columns, units included.
    pub columns: &'static [&'static str],
    /// Its rows, as wide as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    fn to_json(&self) -> Value {
        let row = |row: &Vec<Cell>| {
            let fields = self.columns.iter().zip(row);
            let fields = fields.map(|(name, cell)| ((*name).to_owned(), cell.to_json()));
            Value::Object(fields.collect::<Map<_, _>>())
        };
        json!({"title": self.title, "rows": self.rows.iter().map(row).collect::<Vec<_>>()})
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
        let heads = self.columns.iter().map(ToString::to_string).collect();
        let rule = self.columns.iter().map(|_| "---".to_owned()).collect();
        writeln!(f, "## {}\n\n{}\n{}", self.title, line(heads), line(rule))?;
        for row in &self.rows {
            writeln!(f, "{}", line(row.iter().map(ToString::to_string).collect()))?;
        }
        Ok(())
    }
}

/// All that was measured in one run.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What it was measured on and with.
    pub machine: String,
    /// The tables.
    pub tables: Vec<Table>,
}

impl Report {
    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let tables: Vec<Value> = self.tables.iter().map(Table::to_json).collect();
        json!({"machine": self.machine, "tables": tables})
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine)?;
        self.tables
            .iter()
            .try_for_each(|table| writeln!(f, "{table}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_reads_the_same_for_people_and_programs() {
        let row = vec!["a|b".into(), Cell::Number(1.25, 1), Cell::Nothing];
        let table = Table {
            title: "T",
            columns: &["way", "µs", "ratio"],
            rows: vec![row],
        };
        assert!(table.to_string().ends_with("| a\\|b | 1.2 | - |\n"));
        assert_eq!(table.to_json()["rows"][0]["µs"], 1.25);
    }
}
