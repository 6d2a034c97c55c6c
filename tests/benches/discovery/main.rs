//! How well tools are found, how fast, in how much memory, and what it saves.
//!
//! ```text
//! cargo bench -p mgp-tests --features discovery --bench discovery -- [quality] [misses] [everyday] [items] [requests] [context] [tasks] [growth] [--data FOLDER]
//! ```
//!
//! The tools and tasks are those of LiveMCPBench; the folder's README.md says what is in it.

mod collection;
mod context;
mod everyday;
mod growth;
mod quality;
mod requests;
mod tasks;
mod vectors;

use std::path::PathBuf;

use clap::Parser;
use mgp_embedding::Embedder;
use mgp_tests::load::{Report, machine};

use collection::Collection;

/// What to measure, and of what.
#[derive(Debug, Parser)]
#[command(about = "How well tools are found, how fast, and in how much memory")]
struct Options {
    /// The parts to measure: quality, misses, everyday, items (of its tuning half), requests, context, tasks, growth; all when none is named.
    parts: Vec<String>,
    /// Where tools.json and tasks.json lie; those of this repository when it is not said.
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Grow to so many tools at most.
    #[arg(long, default_value_t = 100_000)]
    most: usize,
    /// Given by `cargo bench`; means nothing here.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|p| p == part)
    }

    fn folder(&self) -> PathBuf {
        let ours = || {
            PathBuf::from(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/corpus/tool_discovery"
            ))
        };
        self.data.clone().unwrap_or_else(ours)
    }
}

fn main() {
    let options = Options::parse();
    let folder = options.folder();
    let collection = match Collection::read(&folder) {
        Ok(collection) => collection,
        Err(why) => {
            eprintln!("{}: {why}; --data names another folder", folder.display());
            std::process::exit(2);
        }
    };
    let mut report = Report {
        machine: machine::description(),
        tables: Vec::new(),
    };
    let (model, loading) = growth::load();
    let mut vectors = vectors::VectorCache::new(&model);
    let index = collection.index(&mut vectors);
    if options.wants("quality") {
        let tables = quality::tables(&collection, &index, &mut vectors);
        report.tables.extend(tables);
    }
    if options.wants("misses") {
        report
            .tables
            .push(quality::misses(&collection, &index, &mut vectors));
    }
    if options.wants("everyday") || options.wants("items") {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/everyday_tools");
        let everyday = everyday::Everyday::read(folder.as_ref(), &mut vectors);
        if options.wants("everyday") {
            report.tables.push(everyday.table(&mut vectors));
        }
        if options.wants("items") {
            report.tables.push(everyday.items(&mut vectors));
        }
    }
    if options.wants("requests") {
        let tables = requests::tables(&collection, &index, &mut vectors);
        report.tables.extend(tables);
    }
    if options.wants("context") {
        report.tables.push(context::table(&index));
    }
    if options.wants("tasks") {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/everyday_tools");
        report.tables.push(tasks::table(folder.as_ref()));
    }
    if options.wants("growth") {
        report.tables.push(loading);
        report.tables.push(growth::table(
            &collection,
            &model,
            &mut vectors,
            options.most,
        ));
    }
    println!("{report}");
}

/// The model as the program has it: both cores of a small machine.
fn embedder() -> Embedder {
    Embedder::load(2).expect("the model is in the program")
}
