//! What a search costs when there are many tools.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mgp_embedding::Embedder;
use mgp_engine::index::{Filter, Index, Request, Search, Shelf, Strategy, Vector};
use mgp_tests::load::latency::Latencies;
use mgp_tests::load::{Cell, Table, Usage};
use nix::sys::resource::{UsageWho, getrusage};

use super::collection::Collection;
use super::means::{Means, meanings};

/// Searches of each kind at each size.
const SEARCHES: usize = 300;
const SIZES: [usize; 4] = [527, 1_000, 10_000, 100_000];

pub(crate) fn load() -> (Embedder, Table) {
    let (before, began, cpu) = (Usage::own().resident, Instant::now(), cpu());
    let model = super::embedder();
    let took = began.elapsed();
    model.embed("the first text").expect("a vector");
    let row = vec![
        Cell::Number(took.as_secs_f64() * 1e3, 0),
        Cell::Number((self::cpu() - cpu).as_secs_f64() * 1e3, 0),
        mib(Usage::own().resident - before),
    ];
    let table = Table {
        title: "The model",
        columns: &[
            "ms to load",
            "CPU ms to load and to read the first text",
            "MiB",
        ],
        rows: vec![row],
    };
    (model, table)
}

/// CPU time of this process, on all its threads.
fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the system tells");
    let micros = |time: nix::sys::time::TimeVal| {
        let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
        u64::try_from(micros).expect("time goes on")
    };
    Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time()))
}

fn mib(bytes: u64) -> Cell {
    Cell::Number(bytes as f64 / f64::from(1 << 20), 1)
}

/// Each kind of query at each size: wall time and CPU time, with the query's own vectors.
pub(crate) fn table(
    collection: &Collection,
    model: &Embedder,
    means: &mut Means<'_>,
    most: usize,
) -> Table {
    let vectors = means.all();
    let mut rows = Vec::new();
    let questions = collection.tasks.iter().map(|task| task.query.as_str());
    let questions: Vec<&str> = questions.collect();
    let steps = collection.tasks.iter().flat_map(|task| &task.steps);
    let steps: Vec<&str> = steps.map(String::as_str).collect();
    for size in SIZES.into_iter().filter(|size| *size <= most) {
        let before = Usage::own().resident;
        let index = grown(collection, &vectors, size);
        let memory = Usage::own().resident.saturating_sub(before);
        let began = Instant::now();
        let shelf = Arc::clone(index.shelves().next().expect("a server"));
        let next = index.with(shelf);
        let adding = began.elapsed();
        drop(next);
        for (kind, texts) in [("question", &questions), ("step", &steps)] {
            let mut row = vec![Cell::Number(index.len() as f64, 0), kind.into()];
            row.extend(timed(&index, model, texts));
            row.extend([mib(memory), Cell::Number(adding.as_secs_f64() * 1e3, 2)]);
            rows.push(row);
        }
    }
    Table {
        title: "Searching",
        columns: &[
            "tools",
            "query",
            "vectors p50 ms",
            "vectors p99 ms",
            "search p50 ms",
            "search p99 ms",
            "both p50 ms",
            "both p99 ms",
            "CPU ms, vectors",
            "CPU ms, search",
            "index MiB",
            "ms to publish a server",
        ],
        rows,
    }
}

fn timed(index: &Index, model: &Embedder, texts: &[&str]) -> Vec<Cell> {
    let mut times: [Latencies; 3] = std::array::from_fn(|_| Latencies::default());
    let mut spent = [Duration::ZERO; 2];
    for text in texts.iter().cycle().take(SEARCHES) {
        let (began, cpu_began) = (Instant::now(), cpu());
        let vectors = meanings(model, text);
        let (embedded, cpu_embedded) = (began.elapsed(), cpu());
        let request = Request::read(text).expect("a request");
        let found = index.search(&Search {
            request: &request,
            meanings: &vectors,
            strategy: Strategy::Hybrid,
            filter: &Filter::default(),
            most: 5,
            visible: &|_| true,
        });
        assert_eq!(found.hits.len(), 5);
        let both = began.elapsed();
        for (times, took) in times.iter_mut().zip([embedded, both - embedded, both]) {
            times.add(took);
        }
        spent[0] += cpu_embedded - cpu_began;
        spent[1] += cpu() - cpu_embedded;
    }
    let wall = times
        .iter()
        .flat_map(|times| [times.percentile(50.0), times.percentile(99.0)]);
    let wall = wall.map(|micros| Cell::Number(micros / 1e3, 1));
    let each = |spent: Duration| Cell::Number(spent.as_secs_f64() * 1e3 / SEARCHES as f64, 1);
    wall.chain(spent.map(each)).collect()
}

/// The collection again and again under other names, each time with other ends to the descriptions
/// and vectors between two of the real ones.
fn grown(collection: &Collection, vectors: &[Vector], size: usize) -> Index {
    let mut index = Index::default();
    let mut tools = 0;
    for copy in 0.. {
        let tell = |tool: &super::collection::Tool| {
            let at = tool.name.len() * 31 + tool.description.len() + copy * 7919;
            let other = &collection.tools[at % collection.tools.len()].description;
            if copy == 0 {
                tool.description.clone()
            } else {
                halves(&tool.description, other)
            }
        };
        for shelf in collection.shelves(&format!("-{copy}"), tell) {
            if tools >= size {
                return index;
            }
            tools += shelf.entries().len();
            index = index.with(Arc::new(filled(&shelf, vectors)));
        }
    }
    index
}

fn halves(one: &str, other: &str) -> String {
    let (head, _) = one.split_at(one.floor_char_boundary(one.len() / 2));
    let (_, tail) = other.split_at(other.floor_char_boundary(other.len() / 2));
    format!("{head} {tail}")
}

fn filled(shelf: &Shelf, vectors: &[Vector]) -> Shelf {
    shelf.with_vectors(&mut |text| {
        let number =
            |at: usize| usize::from(u16::from_le_bytes([text.hash[at], text.hash[at + 1]]));
        let pick = |at| &vectors[number(at) % vectors.len()];
        Vector::between(&[pick(0), pick(2)])
    })
}
