//! What a search costs when there are many tools.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mgp_embedding::Embedder;
use mgp_engine::policy::access::{self, DefaultPolicies, Principal};
use mgp_engine::policy::grants::{Authority, Grants};
use mgp_engine::tools::index::{
    Index, IndexSearch, SearchFilter, SearchRequest, ServerIndex, Strategy, Vector,
};
use mgp_protocol::ids::{AgentId, NodeId, ServerId};
use mgp_protocol::mgp::access::DefaultPolicy;
use mgp_tests::load::latency::Latencies;
use mgp_tests::load::{Cell, Table, Usage};
use nix::sys::resource::{UsageWho, getrusage};

use super::collection::Collection;
use super::vectors::{VectorCache, embed_request};

/// Searches of each kind at each size.
const SEARCHES: usize = 300;
const SIZES: [usize; 3] = [527, 10_000, 100_000];

/// Where more tools come from.
#[derive(Clone, Copy)]
enum From {
    /// The same servers, with more tools each.
    Larger,
    /// More servers of the same size.
    More,
}

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
    vectors: &mut VectorCache<'_>,
    most: usize,
) -> Table {
    let vectors = vectors.text_vectors();
    let mut rows = Vec::new();
    let questions = collection.tasks.iter().map(|task| task.query.as_str());
    let questions: Vec<&str> = questions.collect();
    let steps = collection.tasks.iter().flat_map(|task| &task.steps);
    let steps: Vec<&str> = steps.map(String::as_str).collect();
    let sizes = SIZES.into_iter().filter(|size| *size <= most);
    for (size, from) in sizes.flat_map(|size| [(size, From::Larger), (size, From::More)]) {
        let before = Usage::own().resident;
        let index = grown(collection, &vectors, size, from);
        let memory = Usage::own().resident.saturating_sub(before);
        let began = Instant::now();
        let shelf = Arc::clone(index.servers().next().expect("a server"));
        let next = index.with_server(shelf);
        let adding = began.elapsed();
        drop(next);
        for (kind, texts) in [("question", &questions), ("step", &steps)] {
            let mut row = vec![
                Cell::Number(index.len() as f64, 0),
                Cell::Number(index.servers().count() as f64, 0),
                kind.into(),
            ];
            row.extend(timed(&index, model, texts));
            row.extend([mib(memory), Cell::Number(adding.as_secs_f64() * 1e3, 2)]);
            rows.push(row);
        }
    }
    Table {
        title: "Searching",
        columns: &[
            "tools",
            "servers",
            "query",
            "p50 ms",
            "p99 ms",
            "CPU of vectors, p50 ms",
            "p99",
            "CPU of the search, p50 ms",
            "p99",
            "CPU of both, p50 ms",
            "p99",
            "index MiB",
            "ms to publish a server",
        ],
        rows,
    }
}

/// Rules under which an agent may call everything but the tools of one server: they are asked about
/// every tool, as for an agent whose access is not the same everywhere.
fn rules() -> (access::GrantTable, Principal) {
    let closed = (ServerId::new("closed"), DefaultPolicy::OptIn);
    let defaults = DefaultPolicies {
        kernel: DefaultPolicy::OptOut,
        servers: [closed].into(),
        group: None,
    };
    let table = access::GrantTable::build(
        &Grants::default(),
        &Authority::without_issuers(NodeId([0; 32])),
        defaults,
        0,
        1,
    );
    (table, Principal::Agent(AgentId::new("agent.ann")))
}

fn timed(index: &Index, model: &Embedder, texts: &[&str]) -> Vec<Cell> {
    let (table, who) = rules();
    let mut times: [Latencies; 4] = std::array::from_fn(|_| Latencies::default());
    for text in texts.iter().cycle().take(SEARCHES) {
        let (began, cpu_began) = (Instant::now(), cpu());
        let vectors = embed_request(model, text);
        let cpu_embedded = cpu();
        let request = SearchRequest::parse(text);
        let found = index.search(&IndexSearch {
            request: &request,
            vectors: &vectors,
            strategy: Strategy::Hybrid,
            filter: &SearchFilter::default(),
            limit: 5,
            is_visible: &|tool| table.is_allowed(&who, &tool.server, Some(&tool.name), 0),
        });
        assert_eq!(found.hits.len(), 5);
        let (both, cpu_ended) = (began.elapsed(), cpu());
        let spent = [
            both,
            cpu_embedded - cpu_began,
            cpu_ended - cpu_embedded,
            cpu_ended - cpu_began,
        ];
        for (times, took) in times.iter_mut().zip(spent) {
            times.add(took);
        }
    }
    let both = |times: &Latencies| [50.0, 99.0].map(|share| times.percentile(share));
    let all = times.iter().flat_map(both);
    all.map(|micros| Cell::Number(micros / 1e3, 1)).collect()
}

/// The collection again and again, each time with other ends to the descriptions and vectors between
/// two of the real ones.
fn grown(collection: &Collection, vectors: &[Vector], size: usize, from: From) -> Index {
    let tell = |tool: &super::collection::Tool, copy: usize| {
        let at = tool.name.len() * 31 + tool.description.len() + copy * 7919;
        let other = &collection.tools[at % collection.tools.len()].description;
        if copy == 0 {
            tool.description.clone()
        } else {
            halves(&tool.description, other)
        }
    };
    let copies = size.div_ceil(collection.tools.len());
    let shelves: Box<dyn Iterator<Item = ServerIndex>> = match from {
        From::Larger => Box::new(collection.shelves("", 0..copies, tell).into_iter()),
        From::More => Box::new(
            (0..copies)
                .flat_map(|copy| collection.shelves(&format!("-{copy}"), copy..copy + 1, tell)),
        ),
    };
    shelves.fold(Index::default(), |index, shelf| {
        index.with_server(Arc::new(filled(&shelf, vectors)))
    })
}

fn halves(one: &str, other: &str) -> String {
    let (head, _) = one.split_at(one.floor_char_boundary(one.len() / 2));
    let (_, tail) = other.split_at(other.floor_char_boundary(other.len() / 2));
    format!("{head} {tail}")
}

fn filled(shelf: &ServerIndex, vectors: &[Vector]) -> ServerIndex {
    shelf.with_vectors(&mut |text| {
        let number =
            |at: usize| usize::from(u16::from_le_bytes([text.hash[at], text.hash[at + 1]]));
        let pick = |at| &vectors[number(at) % vectors.len()];
        Vector::mean(&[pick(0), pick(2)])
    })
}
